"""What the search knows of English: words that say nothing alone, irregular forms, words that mean much the same.

Plain tables and nothing else. `STOP` is left out of the index; a change to `STOP`, `LEMMAS` or the stemmer needs a new
`INDEX_VERSION` in `everlong.store.search.words`. `WEAK` and `SYNONYMS` touch questions only.
"""

from __future__ import annotations

__all__ = ["LEMMAS", "STOP", "SYNONYMS", "WEAK"]

_STOP_WORDS = """
a an the of to in is it its and or for on at by be am are was were been being as this that these those with from but
if so than then i me my mine you your yours he him his she her hers we us our ours they them their theirs not no nor
do does did done doing have has had having s t d m ll re ve don didn doesn isn wasn aren weren haven hasn hadn couldn
wouldn shouldn ain
"""
STOP = frozenset(_STOP_WORDS.split())
"""Function words: they stand in most messages, so that an index entry for them would find nothing."""

_WEAK_WORDS = """
what which who whom whose when where why how will would could should can may might must shall about into out up down
over under again also just only very too there here some any all both each more most other such own same like get got
go make tell say know think thing want let ever still even much many lot really because during while after before
since until between through off above below once per via kind type sort name call happen please show find search look
mention discuss talk said told ask long have use ok yes hi hey hello thank
"""
WEAK = frozenset(_WEAK_WORDS.split())
"""Words of a question that carry little of what is asked; they count for less when there are others."""

_IRREGULAR = """
arise arose arisen; awake awoke awoken; bear bore borne; beat beaten; become became; begin began begun; bend bent; bet;
bind bound; bite bit bitten; bleed bled; blow blew blown; break broke broken; breed bred; bring brought; build built;
burn burnt; buy bought; catch caught; choose chose chosen; come came; creep crept; deal dealt; dig dug; draw drew drawn;
dream dreamt; drink drank drunk; drive drove driven; eat ate eaten; fall fell fallen; feed fed; feel felt;
fight fought; find found; flee fled; fly flew flown; forbid forbade forbidden; forget forgot forgotten;
forgive forgave forgiven; freeze froze frozen; get got gotten; give gave given; go went gone; grow grew grown;
hang hung; hear heard; hide hid hidden; hold held; keep kept; kneel knelt; know knew known; lay laid; lead led;
lean leant; learn learnt; leave left; lend lent; lie lain; lose lost; make made; mean meant; meet met; pay paid;
ride rode ridden; ring rang rung; rise rose risen; run ran; say said; see saw seen; seek sought; sell sold; send sent;
sew sewn; shake shook shaken; shine shone; shoot shot; show shown; shrink shrank shrunk; sing sang sung; sink sank sunk;
sit sat; sleep slept; slide slid; smell smelt; speak spoke spoken; spell spelt; spend spent; spill spilt; stand stood;
steal stole stolen; stick stuck; sting stung; strike struck; swear swore sworn; sweep swept; swim swam swum;
swing swung; take took taken; teach taught; tear tore torn; tell told; think thought; throw threw thrown;
understand understood; wake woke woken; wear wore worn; weep wept; win won; withdraw withdrew withdrawn;
write wrote written; rebuild rebuilt; rewrite rewrote rewritten; overcome overcame; undergo underwent;
man men; woman women; foot feet; tooth teeth; mouse mice; goose geese; person people; life lives;
wife wives; knife knives; leaf leaves; half halves; shelf shelves; wolf wolves; loaf loaves; thief thieves;
index indices; criterion criteria; datum data; analysis analyses; crisis crises; medium media; matrix matrices;
good better best; bad worse worst; far further farther furthest;
mum mom mummy mommy mama mother; dad daddy papa father; gran granny grandma nana grandmother;
grandad granddad grandpa grandfather; kid child children;
photo photograph pic picture; bike bicycle; tv television; phone telephone; fridge refrigerator; flat apartment;
colour color; favourite favorite; neighbour neighbor; honour honor; humour humor; behaviour behavior; flavour flavor;
centre center; theatre theater; metre meter; grey gray; organise organize; realise realize; recognise recognize;
apologise apologize; practise practice; programme program; travelling traveling; catalogue catalog; dialogue dialog;
config configuration; repo repository; db database; auth authentication; env environment; dir directory folder;
doc documentation; admin administrator; app application; param parameter; arg argument; async asynchronous;
january jan; february feb; august aug; september sept sep; october oct; november nov; december dec;
monday mon; tuesday tue tues; wednesday wed; thursday thu thur thurs; friday fri; saturday sat; sunday sun;
2 two; 3 three; 4 four; 5 five; 6 six; 7 seven; 8 eight; 9 nine; 10 ten; 11 eleven; 12 twelve; 13 thirteen;
14 fourteen; 15 fifteen; 16 sixteen; 17 seventeen; 18 eighteen; 19 nineteen; 20 twenty
"""

LEMMAS: dict[str, str] = {
    form: entry.split()[0]
    for entry in _IRREGULAR.replace("\n", " ").split(";")
    if entry.split()
    for form in entry.split()
}
"""Irregular forms, spellings and short forms, each with the word under which it is indexed."""
# "sat" is a form of "sit" first and a weekday in short second; words that are other words' forms stay themselves.
LEMMAS["sat"], LEMMAS["lives"], LEMMAS["leaves"], LEMMAS["data"] = "sit", "live", "leave", "data"
LEMMAS["media"], LEMMAS["application"], LEMMAS["found"] = "media", "application", "find"

_ALIKE = """
begin start; buy purchase; fix repair mend; surgery operation; contest competition tournament; trip journey travel;
holiday vacation; movie film; car vehicle; gift present; job work career profession; kid daughter son; parent mum dad;
sibling brother sister; spouse husband wife partner; marry wedding; pet dog cat puppy kitten; house home;
shop store; ill sick; injure hurt; doctor physician; teacher tutor instructor; pupil student; race run;
class course lesson workshop;
hike walk trek; painting paint; sculpture pottery; music song; instrument guitar violin piano; book novel; cook recipe;
meal dinner lunch; money cash; price cost; salary pay; quit resign leave; die death pass; birth born; age old;
city town; country nation; happy glad; afraid scared fear; angry upset; goal aim; plan intend; hobby activity;
volunteer charity; show exhibit exhibition; photo camera; beach sea ocean; forest wood;
error bug crash failure exception;
delete remove; create make; picture image; company firm business; exam test; party celebration; adopt adoption;
fast quick; big large; small little; destroy break; win prize award; game match; speak talk; job position role;
meet meeting; study research; kitchen cook; clothes wear dress; support help; advice recommend recommendation suggest
"""

SYNONYMS: tuple[tuple[str, ...], ...] = tuple(
    tuple(group.split()) for group in _ALIKE.replace("\n", " ").split(";") if group.split()
)
"""Words of which a question uses one and the answer often another."""
