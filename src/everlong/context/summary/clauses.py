"""Clauses: what people say, told apart from what they paste, cut into parts that can stand by themselves.

A request comes with greetings, doubts and code; what it asks or states is a clause or two, kept whole in the user's own
words. The sentence that concludes an answer is found here too. Each function sees one text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from everlong.context.summary.entities import entities
from everlong.context.summary.language import sentences
from everlong.context.text import one_line

_FENCE = re.compile(r"^[ \t>]*(`{3,}|~{3,})[^\n]*\n(?:.*?^[ \t>]*\1[^\n]*$|.*\Z)", re.MULTILINE | re.DOTALL)
_CODE_LINE = re.compile(
    r"^\s*(?:[<>{}()\[\]|@;=]|//|/\*|\*/|#!|#include|\$ |\.[\w-]+[^.]*[{,]\s*$|\d+\s*[|:→]|[-+]{3} |@@ |[drwx-]{9,}|"
    r"(?:import|from|def|class|const|let|var|function|return|if|for|while|else|elif|try|except|with|public|private|"
    r"static|SELECT|INSERT|CREATE|UPDATE)\b.*[({:;=\"']\s*\S*\s*$)"
    r"|[{};]\s*$|</?\w+[^>]*>\s*$|^\s*[\w.$-]+\s*[:=]\s*\S{0,60}[;,]$|=>|&&\s|\|\||::\w|\w\(\)\s*[;{]|"
    r"^\s*\"?[\w-]+\"?:\s*[\"\[{]"
    r"|^\s*File \"|^\s*at \S+ ?\(|^Traceback"
)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_TITLE = re.compile(r"^[ \t]*(?:[-*•]\s+|\d+[.)]\s+)?\*\*[^*\n]{1,60}\*\*[:：]?[ \t\r]*$", re.MULTILINE)
"""A line in bold by itself, which is a heading."""
_CODE_STARTS = ".+-drwxT"
_CODE_SIGN = re.compile(r"[<>{}()\[\]|@;=/*#$:→&\"'\\]")
"""Characters of which every line of code has one; checking for them spares most lines the long expression."""
_SETTING = re.compile(r"\b[A-Z_]{3,}=")
_SHORT_WORD = 8
_TITLE_SPACES = 4
_LETTER = re.compile(r"[^\W\d_]")
_LETTERS_IN_PROSE = 0.55
_LONGEST_CLAUSE = 320
_SHORTEST_CLAUSE = 2
"""The least plain words, or Chinese characters, of a clause that names nothing."""

# The end of one clause and the beginning of another. Commas inside of a list do not count.
_FIRST_PERSON = r"(?:i|i'm|i've|i'd|i'll|we|we're|we've|we'll|my|our)\b"
_OWN_THING = r"(?:my|our)(?: [\w'-]+){1,4} (?:is|are|was|were|has|have|had|will|would|needs?|wants?|seems?)\b"
_BEGINS = rf"(?:(?:i|i'm|i've|i'd|i'll|we|we're|we've|we'll)\b|{_OWN_THING})"
"""Beginnings of clauses in which people speak of themselves; "my" alone may stand inside of one."""
_SUBJECT = r"(?:you|i|we|it|he|she|they|this|that|these|those|there|the|my|our|an?|any|anyone|someone|one)\b"
_CLAUSE_END = re.compile(
    r"[,;]\s+(?=(?:and |but |so |or |then )*(?:"
    rf"(?:can|could|would|will|do|does|did|is|are|am|was|were|should)(?:n't)? {_SUBJECT}"
    r"|(?:where|who|which \w+) (?:can|could|should|do|does|did|would|will|to|i)\b"
    rf"|{_BEGINS}|like (?=maybe|what|how|if|should|can|do|{_FIRST_PERSON})"
    rf"|(?:especially |particularly )?(?:considering|given|since|because)(?: that)? {_FIRST_PERSON}"
    r"|(?:how|what|when|why|here's|here|maybe|but|so|specifically|especially|given|while|although|though|however"
    r"|please|let's)\b))"
    r"|(?<=\w\w[.?!])(?<!etc\.)(?<!vs\.)\s+(?=[a-z])"
    r"|\s+[-–—]+\s+|;\s+|\s+(?=(?:but|because|so that|and (?:i|i'm|i've|we|can|could|now|then|also))\s)"
    rf"|\s+(?=and {_OWN_THING})|；\s*",
    re.IGNORECASE,
)
_SUBJECT_ONLY = re.compile(
    r"(?:(?:my|our|his|her|their|the) )?(?:[a-z]+ )?[A-Z][\w'-]+(?: [A-Z][\w'-]+)?"
    r"|(?:[Mm]y|[Oo]ur) \w+(?: [A-Z][\w'-]+)?"
)
"""The other subject of a sentence such as "Ida and I moved"."""
_CONNECTIVE = (
    r"(?:(?:and|but|so|or|also|then|now|like|well|yes|yeah|no|ok|okay|alright|sure|great|hi|hello|hey|oh|right|actually|"
    r"also|thanks|"
    r"thank you|perfect|please|maybe|currently|basically|specifically|everyone|again)\b[,!.]?\s+)*"
)
_JOINS = re.compile(_CONNECTIVE, re.IGNORECASE)
_BACKGROUND = re.compile(
    r"(?:(?:and|but|so|also|especially|particularly)\s+)*(?:given|considering|since|because|as|knowing|seeing"
    rf"|taking into account|now)(?: the fact)?(?: that)?\s+(?={_FIRST_PERSON})",
    re.IGNORECASE,
)
"""Words that join what people tell of themselves to what they ask."""
_LEAD_IN = re.compile(
    rf"{_CONNECTIVE}"
    r"(?:(?:can|could|would|will) (?:you|we|i)\s+(?:please\s+|also\s+|maybe\s+|possibly\s+|now\s+)*(?:help me\s*"
    r"(?:out\s+|with\s+|to\s+|figure out\s+|understand\s+|come up with\s+|plan out\s+)*"
    r"|walk me through\s+|assist me\s+(?:with|in)\s+)?"
    r"|i(?:'m| am| was)? (?:just |also |now |really |currently |still )*(?:trying to|want(?:ing)? to|need(?:ing)? to|"
    r"look(?:ing)? (?:to|for)|hop(?:e|ing) to|attempting to|working on|having (?:some |a bit of )?(?:trouble|issues|"
    r"problems|"
    r"difficulty) (?:with|in)?\s*|wonder(?:ing)?|thinking (?:of|about)|planning to|struggling (?:with|to))\s+"
    r"|i(?:'d| would) (?:also |really )?(?:like|love|need)(?: to| you to| some help(?: with)?| help(?: with)?)?\s+"
    r"|i(?:'d| would) appreciate (?:it if you could )?(?:help (?:with|in) )?"
    r"|help me (?:with|to|out with)?\s*"
    r"|please\s+)?"
    r"(?:(?:make sure|ensure) (?:that )?(?:i'm|i am)\s+)?",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    r"(?:thank(?:s| you)\b.*|(?:yes|yeah|no|ok|okay|sure|great|perfect|cool|nice|right|got it|sounds good|awesome|"
    r"exactly)"
    r"(?:[,!. ]+(?:that|this|it|thanks|please|thank you|go ahead|continue|go on|proceed|do it|sounds good)\b.*)?"
    r"|that(?:'s| is| was| really| all)?\b.{0,30}\b(?:help(?:s|ful|ed)?|great|clear\w*|perfect|makes sense|good|"
    r"work\w*)\b.*"
    r"|(?:here(?:'s| is| are)|this is|these are|below is) (?:my|what|the|a|an|some|our|how)\b.*"
    r"|(?:i'm |i am |but )?(?:encountering|facing|getting|running into) (?:some|a few|an?|any)? ?(?:issues?|"
    r"problems?|errors?|difficult\w+)"
    r"|(?:it|nothing|this|that|they|some of them)(?:'s| is| are)? (?:still )?(?:seems?|looks?|appears?|doesn't seem|"
    r"not working|isn't "
    r"working|doesn't work|aren't working)\b[^\d]{0,50}|(?:please )?(?:proceed|go ahead|continue) with (?:that|this|"
    r"the|it)\b.{0,30}"
    r"|(?:take a look|have a look|review (?:them|it|this)|check (?:it|this|them)|get (?:some )?feedback\b.*|"
    r"give (?:me )?"
    r"(?:some )?feedback.*|improve it|build this feature|do i need to\b.{0,30}|modify my code\b.*|"
    r"i've tried (?:a few|some|many|"
    r"several|different|various)\b.*|make sure\b(?!.*\d)(?!.*[A-Z]).*|.{0,12}\bbest practices\b.*|"
    r"using the \w+ correctly|"
    r"doing it (?:correctly|right)|my (?:html|css|code|js|javascript|script|html code|css code|"
    r"current code)(?: (?:is|code|looks).*)?|"
    r"the (?:html|css|code)|for example|focus(?:ing)? on (?:that|this|it).*)"
    r"|(?:continue|go on|proceed|go ahead|carry on|keep going|next|do it|please do|ready|stop|wait|resume|retry|again)"
    r"(?: please)?"
    r"|i(?:'m| am) (?:still |really |a bit |just |so |kind of |getting |getting really |totally |also )*(?:not sure|"
    r"unsure|"
    r"confused|lost|stuck|worried|curious|wondering|new to|excited|open to|happy|glad)\b.*"
    r"|i (?:don't|do not) (?:know|understand|get)\b.*|i (?:want|need|wanted|just want) to (?:make sure|be sure|"
    r"know if|get it|"
    r"understand)\b.*|i(?:'m| am) having (?:some )?(?:trouble|issues|problems|difficulty|a hard time)\b[^\d]*"
    r"|(?:i|i've|we've) (?:think|guess|mean|hope|heard|was thinking|feel like|believe)\b.{0,60}"
    r"|(?:can|could|would|will) you (?:please |maybe |also )*(?:help(?: me)?(?: with (?:that|this|it))?(?: out)?|"
    r"explain (?:it|this|"
    r"that)\b.*|assist(?: me)?.{0,20}|guide me.{0,40}|show me (?:how|an example).{0,30}|walk me through (?:it|this|"
    r"that).{0,30}"
    r"|do (?:that|this|it)|(?:review|check|look at) (?:my|the|this) code\b.*|provide (?:some |an? )?(?:guidance|"
    r"examples?|tips|"
    r"advice|insights?|help)\b.{0,30}|give me (?:some |an? )?(?:guidance|examples?|tips|advice|insights?)\b.{0,40})"
    r"|(?:like|maybe|or|and)\b.{0,25}\b(?:something|examples?|like (?:this|that)|or something)\b.{0,20}"
    r"|(?:with|like|maybe|for) (?:that|this|it|some|an? examples?)\b.{0,20}|what do you think|any (?:ideas|thoughts|"
    r"tips).*"
    r"|(?:is|does) (?:that|this|it) (?:right|correct|okay|ok|make sense)|(?:am i )?(?:right|correct|"
    r"or am i missing something here)"
    r"|how (?:can|do|should) i (?:do (?:this|that|it)|start|proceed|get started)|where (?:to|should i|do i) start"
    r"|(?:let me know|looking forward|no problem|never ?mind|hi|hello|hey|good (?:morning|evening|afternoon))\b.*"
    r"|(?:i(?:'m| am|'ve been)? (?:feel(?:ing)?|kinda|kind of|sorta|just|really|quite|so|a bit|still|also|"
    r"been) )+(?:really |so |a bit |quite |"
    r"kinda )*(?:stressed|worried|nervous|excited|confused|proud|grateful|relieved|happy|stuck|anxious|curious|"
    r"overwhelmed|frustrated|"
    r"confident)\b[^\d]*|(?:my question is|does that sound good|these \w+ look great|this plan looks great|"
    r"on the right track|hmm|w\.t\.f)"
    r"|(?:in that case|of course|absolutely|definitely|alright|i see|i'll check\b.{0,40}|i(?:'m|"
    r" am) not (?:entirely |quite |really )?"
    r"(?:certain|sure)\b.*|makes sense|fine by me|agreed|all good|good (?:catch|point|work|job|idea)|nice\b.{0,30}|"
    r"sorry\b.{0,20}|"
    r"leave it|never again|"
    r"it should be fine|(?:he|she) (?:says|said) thanks|.{0,12}\bsays thanks|coffee.{0,10}|let's take a coffee|"
    r"okay then)"
    r"|(?:hold on|(?:one|just a|wait a|give me a) (?:moment|second|sec|minute))\b.*"
    r"|谢谢.*|很好|不用|她知道了|好的?|可以|是的?|嗯+|继续|请继续|对|没问题|行)[\s.!?,:，。！？…]*",
    re.IGNORECASE,
)
_POINTER = re.compile(
    r"\b(?:following|below|like this|looks like|as follows|this|is|here)\b[^:：]{0,40}[:：]\s*$", re.IGNORECASE
)
"""A sentence that only points to the code or list after it."""
_GO_AHEAD = re.compile(
    r"(?:(?:yes|yeah|yep|ok(?:ay)?|sure|please|thanks?|thank you|great|good|perfect|nice|cool|continue|go on|"
    r"go ahead|proceed|"
    r"do it|keep going|carry on|next|right|exactly|correct|confirmed?|i confirm|with that|with this|so much|very much|"
    r"for (?:your|the) help|that(?:'s| is)? (?:all|it|fine|good|great|correct|right)|sounds good|looks good|lgtm|"
    r"alright|"
    r"hi|hello|hey|got it|resume|retry|try again|again|"
    r"a lot|and|you|the|it|now|then|everything|all|y|k|n|no|nope)\b[\s,.!?…-]*)+"
    r"|(?:好的?|继续|请继续|可以|是的?|嗯+|对|行|谢谢|没问题)[\s。！，,.!]*|/\w{1,12}|\W*",
    re.IGNORECASE,
)
_FIGURE = re.compile(r"\d")
_NAMES_SELF = re.compile(r"(?:I(?:'m| am|’m)|[Mm]y name is) [A-Z][a-z]+")
_WORDS = re.compile(r"[^\W\d_]{2,}")
_HAN = re.compile(r"[\u3400-\u9fff]")
_NO_FIGURE = re.compile(r"\b(?:step|part|option|example|question|section) \d+\b", re.IGNORECASE)


_ASKS = re.compile(
    r"(?:what|how|why|who|whose|which|where|does|do (?:you|i|we|they)|did|is|are|am i|was|were|should (?:i|we)"
    r"|(?:can|could|would|will) (?:i|you|we|it|this|that|they)|have you|any (?:ideas|advice|tips|suggestions))\b",
    re.IGNORECASE,
)
_WONDERS = re.compile(
    r"i(?:'m| am| was|'ve been)? (?:\w+ ){0,2}(?:wonder(?:ing)?|curious|not (?:\w+ )?sure|unsure"
    r"|want to know|like to know)\b",
    re.IGNORECASE,
)
_OWN = re.compile(
    rf"(?:(?:and|but|also|so|especially|particularly|given|considering|since|because|that)\s+)*{_FIRST_PERSON}"
    r"(?! (?:should|could|would|can|need|must|have to)\b)",
    re.IGNORECASE,
)
"""Beginnings of what people tell of themselves within a question."""
_FORMULA = re.compile(r"\\[(\[]|\\[a-z]{3,}\{|\$\$")
"""Typeset mathematics, which people paste rather than say."""
_NO_PROSE = "#➜❯↑↓▶✔✓✗✖│├└"
"""First characters of headings, shell prompts and lines of a program's screen."""
_ATTACHED = re.compile(r"(?:/|~/|[A-Z]:\\)\S+/.*\.\w{2,4}")
"""The path of a file that someone dropped into the prompt."""
_DROPPED = re.compile(r"'?/([^'\n]++)'\s+")
_FILE_NAME = re.compile(r".+\.\w{2,4}")
_ASKS_ON = re.compile(r"(?:hmm|once|so|and|but|if)\b[^?]*\?$|.{0,24}\b(?:what|how) (?:if|about)\b", re.IGNORECASE)
_HANGS = re.compile(
    r"(?:especially|specifically|given|since|because|if|when|whenever|like|including|which|that|where|while|"
    r"although|though|"
    r"as|using|with|by|for|from|after|before|considering|so|to|and|or|then|but|than|rather|until|unless|whether|once)\b",
    re.IGNORECASE,
)


_POINTS = re.compile(
    r"\b(?:this|these|those|it|them|they|here|there|above|ones?|each|else|again|now|then|everything|something)\b"
    r"|\bthat(?= \w+$|$|[,?.])"
    r"|\b(?:is|was|does|do|did|like|about|of|for|with|all|to) that\b",
    re.IGNORECASE,
)
"""Words that point to something said before."""
_STATES = re.compile(
    r"(?:i|i'm|i've|i'd|i'll|we|we're|we've|we'll|my|our|he|she|yes|no|just|really|there|there's)\b", re.IGNORECASE
)
"""Beginnings of sentences that tell something rather than ask for it."""
_JUDGES = re.compile(
    r"(?:it|it's|its|this|that|that's|these|those|they|they're|the|you|your|you're|not|so|sounds?|looks?)\b",
    re.IGNORECASE,
)
"""Beginnings of sentences about what was just said."""
_AGREES = re.compile(
    r"^i(?:'ll| will| can)\b|\bsounds? (?:like|good|great)\b|\bgoing (?:\w+ )?(?:smoothly|well|great)\b", re.IGNORECASE
)
"""Replies to advice: that it is good, and that it will be followed."""
_NEED = re.compile(r"\b(?:we|our|my)\b.{0,40}\bneeds?\b", re.IGNORECASE)
_NAME = re.compile(r"(?<=\s)[A-Z][^\W\d_A-Z]+")
_LONG_WORD = re.compile(r"[^\W\d_]{3,}|[\u3400-\u9fff]")
_FULL, _TELLING, _LEAST_WORDS = 7, 4, 3
"""The least meaningful words of a clause that points back, of a statement, and of a clause with its figures."""
_SAYS_LITTLE = frozenset(
    " ".join(
        (
            "the and for with that this these those they them there here have has had are was were been being can",
            "could would should will may might must not but you your our his her its their what which who how why",
            "when where all any some more most other into from out about also just like really very much too then",
            "than get got make made sure want need help let know show tell give see use using way thing things",
            "something everything anything nothing option options better best good great quickly please maybe",
            "possible again step steps part parts example examples look try take now first next new own still",
        )
    ).split()
)
_EMPTY_STARTS = frozenset(
    " ".join(
        (
            "thanks thank yes yeah no ok okay sure great perfect cool nice right got sounds awesome exactly",
            "that that's this here here's these below continue go proceed carry keep next do please ready",
            "stop wait resume retry again i i'm i've i'd i'll but encountering facing getting running it it's",
            "nothing they some take have review check get give improve build modify make using doing my the",
            "for focus focusing can could would will like maybe or and with what any is does am how where let",
            "looking never nevermind hi hello hey good we've in of absolutely definitely alright agreed all",
            "hold one just wait give makes fine sorry leave he she coffee let's hmm w.t.f on also correct not",
        )
    ).split()
)
"""First words of clauses that may say nothing; checking them spares other clauses the long expression."""


def _is_empty(text: str) -> bool:
    """Return whether a clause is a greeting, a plea or a doubt, which neither asks nor states anything."""
    if text.isascii() and text.split(" ", 1)[0].rstrip(",.!?:;").lower() not in _EMPTY_STARTS:
        return False
    return bool(_EMPTY.fullmatch(text)) and not _FIGURE.search(_NO_FIGURE.sub("", text))


class Clause(NamedTuple):
    """A part of a person's words that can stand by itself."""

    text: str
    figures: int
    """The number of figures and names in it, which cannot be paraphrased."""
    asks: bool
    """True if it stands in a question."""
    wished: bool = False
    """True if it was introduced as a wish or a plea, as in "I want to"; those words are left out."""

    @property
    def is_question(self) -> bool:
        """True if it only wants to know something, rather than to have it done."""
        return self.asks and bool(_ASKS.match(self.text) or _ASKS_ON.match(self.text))

    @property
    def stands(self) -> bool:
        """True if it says something by itself: a request that names its subject, or a statement with a name.

        An opinion about an answer, or a wish for more of "this", needs the words around it.
        """
        found = _LONG_WORD.findall(self.text)
        words = sum(word.lower() not in _SAYS_LITTLE for word in found)
        if self.figures:
            first = self.text.split(" ", 1)[0]  # capitalised words are names or months, except the first of a sentence
            plain = sum(word not in _SAYS_LITTLE and (word == first or not word.istitle()) for word in found)
            return plain + self.figures >= _LEAST_WORDS or words >= _TELLING
        if self.leans:
            return False
        if not self.wished and not self.asks:
            if _JUDGES.match(self.text) or _AGREES.search(self.text):
                return False
            if _STATES.match(self.text) and not _NEED.search(self.text):
                return words >= _TELLING and bool(_NAME.search(self.text))
        if self.points or self.text[:4].lower() == "the ":
            return words >= _FULL
        return words >= (_SHORTEST_CLAUSE if self.wished or self.asks else _LEAST_WORDS)

    @property
    def points(self) -> bool:
        """True if it points to something said before."""
        return bool(_POINTS.search(self.text))

    @property
    def leans(self) -> bool:
        """True if it begins like a part of another clause."""
        return bool(_HANGS.match(self.text)) and not self.wished

    @property
    def hangs(self) -> bool:
        """True if it says something only together with the clause before it."""
        return not self.asks and bool(_HANGS.match(self.text))


def is_statement(text: str) -> bool:
    """Return whether a clause begins like a statement rather than a wish."""
    return bool(_STATES.match(text) or _JUDGES.match(text))


def prose(text: str) -> str:
    """Return a text without its code: fenced blocks, and lines that only a program would have."""
    if "```" in text or "~~~" in text:
        text = _FENCE.sub("\n", text)
    if "<!--" in text:
        text = _COMMENT.sub(" ", text)
    if "**" in text and "\n" in text:
        text = _TITLE.sub("", text)
    lines = text.splitlines()
    if len(lines) <= 1:
        return text
    return "\n".join([line for line in lines if _is_short_word(line) or not is_code(line)])


def _is_short_word(line: str) -> bool:
    return len(line) <= _SHORT_WORD and line.isalnum()


def is_code(line: str) -> bool:
    """Return whether a line is code, markup, a log or data, rather than a sentence."""
    plain = line.strip()
    if not plain:
        return False
    if plain[0] == "[" and plain.count(" ") > _TITLE_SPACES and "{" not in plain and not _SETTING.search(plain):
        return False
    if plain[0].isalpha() and plain[-1] in ".?!:," and " " in plain and plain.count(" ") > 3 and "=>" not in plain:
        return plain.count("(") + plain.count("=") + plain.count(";") + plain.count("{") > 4
    if _is_short_word(plain):
        return False
    if (plain[0] in _CODE_STARTS or _CODE_SIGN.search(plain)) and _CODE_LINE.search(line):
        return True
    letters = len(_LETTER.findall(plain))
    spaces = plain.count(" ")
    return letters + spaces < len(plain) * _LETTERS_IN_PROSE and len(plain) > _SHORT_WORD and not _HAN.search(plain)


def is_go_ahead(text: str) -> bool:
    """Return whether a person only says to go on, or thanks: an answer, but no request of its own."""
    return len(text) <= 120 and bool(_GO_AHEAD.fullmatch(text.strip()))


def clauses(text: str, most: int | None = None) -> list[Clause]:
    """Return the clauses of a person's prose that ask or state something, in order, at most ``most``.

    Pleas and doubts are left out.
    """
    return list(islice(_find_clauses(text), most))


def _find_clauses(text: str) -> Iterator[Clause]:
    for sentence in sentences(text):
        if sentence[0] in _NO_PROSE:
            continue
        pieces = list(_pieces(_DROPPED.sub(_without_file, sentence) if sentence[0] in "'/" else sentence))
        turn = len(pieces)
        if sentence.endswith(("?", "？")):
            turn = next((at for at, piece in enumerate(pieces) if _turns_to_ask(piece)), -1)
        for at, piece in enumerate(pieces):
            # A question may come with a statement: "I prefer tabs, what do you think?" states the one and asks the
            # other. If no clause has the shape of a question, the whole sentence asks.
            is_own = turn >= 0 and at > turn and _OWN.match(piece.lstrip().replace("’", "'")) is not None
            clause = _clause(piece, in_question=at >= turn and not is_own, is_own=is_own)
            if clause is not None:
                yield clause


def _without_file(dropped: re.Match[str]) -> str:
    # In two steps: one expression for both takes seconds for a few thousand slashes.
    path = dropped[1]
    folder_end = path.find("/", 1)
    return "" if folder_end > 0 and _FILE_NAME.fullmatch(path, folder_end + 1) else dropped[0]


def _turns_to_ask(piece: str) -> bool:
    plain = piece.lstrip(" ,;").replace("’", "'")
    joins = _JOINS.match(plain)
    start = joins.end() if joins else 0
    return (_ASKS.match(plain, start) or _WONDERS.match(plain, start)) is not None


def _clause(piece: str, *, in_question: bool, is_own: bool) -> Clause | None:
    """Return a piece of a sentence as a clause; None if it says nothing by itself.

    What people tell of themselves is no question, even with a question mark at its end.
    """
    bare = one_line(piece).strip(" ,;:-–—*•>\"'").rstrip(".。")
    if bare.count('"') % 2 and piece.rstrip(" .,;").endswith('"'):
        bare += '"'
    plain = bare.replace("’", "'")  # only for matching: the clause keeps the person's own apostrophes
    if (
        not bare
        or _FORMULA.search(bare)
        or _ATTACHED.fullmatch(bare)
        or "**" in bare
        or "➜" in bare
        or _is_empty(plain)
        or (piece.rstrip().endswith((":", "：")) and _POINTER.search(piece))
    ):
        return None
    told, is_wish = bare, False
    if bare.isascii() or not _HAN.search(bare):
        start = background.end() if (background := _BACKGROUND.match(plain)) else 0
        joined_on = joins.end() if (joins := _JOINS.match(plain, start)) else start
        end = lead_in.end() if (lead_in := _LEAD_IN.match(plain, start)) else start
        told, is_wish = bare[end:].strip(" ,;:-–—"), end > joined_on
    if not told or (told != bare and _is_empty(told.replace("’", "'"))):
        return None
    names = entities(told)
    if not _says_something(told, names):
        return None
    asks = in_question or (told[-1] in "?？" and not is_own) or _ASKS.match(told) is not None
    clause = Clause(told if asks else told.rstrip("?"), _figures(told, names), asks, is_wish)
    return clause if clause.figures or not clause.hangs else None


def figures_in(text: str) -> int:
    """Count the figures and names of a text."""
    return _figures(text, entities(text))


def _figures(text: str, names: Sequence[str]) -> int:
    if names:
        return len(set(names))
    return int(bool(_FIGURE.search(text)) and bool(_FIGURE.search(_NO_FIGURE.sub("", text))))


def _pieces(sentence: str) -> Iterator[str]:
    """Yield a sentence cut at the ends of its clauses; too long pieces are cut at a comma."""
    start = 0
    for end in _CLAUSE_END.finditer(sentence.replace("’", "'") if "’" in sentence else sentence):
        if not _is_quoted(sentence, end.start()) and not _SUBJECT_ONLY.fullmatch(sentence[start : end.start()].strip()):
            yield sentence[start : end.start()]
            start = end.end()
    last = sentence[start:]
    while len(last) > _LONGEST_CLAUSE:
        cut = last.rfind(", ", 40, _LONGEST_CLAUSE)
        cut = cut if cut > 0 else last.rfind(" ", 40, _LONGEST_CLAUSE)
        if cut <= 0:
            return
        yield last[:cut]
        last = last[cut:].lstrip(", ")
    yield last


def _is_quoted(text: str, place: int) -> bool:
    """Return whether a place stands inside of quotation marks, backticks or parentheses."""
    before = text[:place]
    return before.count("`") % 2 == 1 or before.count('"') % 2 == 1 or before.count("(") > before.count(")")


def _says_something(text: str, names: Sequence[str]) -> bool:
    if not text.isascii() and _HAN.search(text):
        return len(_HAN.findall(text)) >= _SHORTEST_CLAUSE
    if text.startswith("/") and "/" not in text[1:]:
        return True  # a command
    if _NAMES_SELF.match(text):
        return True
    words = _WORDS.findall(text)
    return len(words) >= _SHORTEST_CLAUSE and not (names and len(names[0]) >= len(text) - 1)


# -- answers -----------------------------------------------------------------------------------------------------------

_CONCLUDES = re.compile(
    r"^(?:therefore|thus|hence|so|in total|the (?:total|answer|result|final|correct)|total|result|answer|"
    r"you (?:have|need|will)|"
    r"yes|no)\b|^(?:因此|所以|总共|答案)",
    re.IGNORECASE,
)
_HOLLOW = re.compile(
    r"^(?:by (?:following|implementing|using|combining|doing|understanding|breaking|adding|focusing|applying|"
    r"setting)\b|"
    r"(?:this|these|the (?:above|following|updated|provided)|with (?:this|these)|here(?:'s| is| are)|feel free|"
    r"let me know|"
    r"if you|would you|do you|you can|you should|remember|good luck|happy|i hope|hope|sure|certainly|absolutely|"
    r"of course|"
    r"great|let's|let me|now (?:let|i)|i'll (?:start|now|check|look|read)|"
    r"i (?:need|have) to|good (?:idea|luck|question)|to (?:ensure|"
    r"achieve|test|"
    r"further|create|help)|please|thank|step \d|example|note|for example|overall|in summary|no response|is there|"
    r"are there|"
    r"what|which|how|could you|run|re-?run|check|try|now|if so|i will|i'll|excellent|perfect|okay|"
    r"to (?:assist|proceed|process|make)|"
    r"i (?:can|could) (?:assist|help)|i (?:understand|apologize|see|appreciate)|it seems there is a mis\w+)\b)"
    r"|\bplease (?:provide|confirm|let|share|tell)\b|[?:：？]$",
    re.IGNORECASE,
)
_EMPHASIS = re.compile(r"(?<![\w)])\*\*|\*\*(?![\w(])")
_LABELLED = re.compile(r"[A-Z][\w ()/#&-]{1,28}:\s\S")
"""An item of a list with its label, such as ``Departure: 06:00``."""
_MARKUP = re.compile(r"(?<![\w)])\*\*|\*\*(?![\w(])|^#+\s*|^[-*•]\s+|^\d+[.)]\s+")
_MARKUP_STARTS = "#-*•"
_LONGEST_CONCLUSION = 220
_FEW_SPACES = 2
"""A title or an item of a list has fewer spaces; it concludes nothing."""
_SHORT_ANSWER = 3
"""An answer of this many sentences is its own conclusion."""


class Conclusion(NamedTuple):
    """The core of an answer; empty if there is none."""

    reports: str
    """For work with tools: the first telling sentence of the message."""
    concludes: str
    """For an explanation: the last sentence that draws a conclusion with a figure in it."""


NO_CONCLUSION = Conclusion("", "")


def conclude(said: Sequence[str]) -> Conclusion:
    """Return the conclusion of an answer, from its sentences without markup and code."""
    reports = next(filter(_is_telling, said), "")
    if len(said) <= _SHORT_ANSWER:
        return Conclusion(reports, reports)
    drawn = (s for s in reversed(said) if _CONCLUDES.match(s) and _FIGURE.search(s) and _is_telling(s))
    return Conclusion(reports, next(drawn, ""))


def _is_telling(sentence: str) -> bool:
    """Return whether a sentence can be a conclusion: no title, no introduction, no courtesy, no code."""
    return (
        12 <= len(sentence) <= _LONGEST_CONCLUSION
        and not _LABELLED.match(sentence)
        and (sentence.count(" ") >= _FEW_SPACES or _HAN.search(sentence) is not None)
        and not _HOLLOW.search(sentence)
        and not _FORMULA.search(sentence)
        and not is_code(sentence)
    )


def without_emphasis(line: str) -> str:
    """Return a line without Markdown's asterisks; those of a program stay."""
    return _EMPHASIS.sub("", line) if "**" in line else line


def plain_line(sentence: str) -> str:
    """Return a sentence without Markdown around and inside of it."""
    may_have_marks = "**" in sentence or sentence[:1] in _MARKUP_STARTS or sentence[:1].isdecimal()
    return one_line(_MARKUP.sub("", sentence) if may_have_marks else sentence).removeprefix("THOUGHT: ")


NEXT, LEFT_OUT = "; ", " … "
"""Separators between adjacent clauses, and where clauses were left out."""


def join_clauses(parts: Iterable[Clause], whole: Sequence[Clause]) -> str:
    """Return clauses as one text that can be split again; an ellipsis marks clauses left out."""
    places = {clause: place for place, clause in enumerate(whole)}
    text, last = "", -1
    for clause in parts:
        place = places[clause]
        gap = "" if not text else NEXT if place == last + 1 else LEFT_OUT
        text += gap + clause.text
        last = place
    return text


_SOFT_END = re.compile(r"[,;:，；：]\s*|\s[-–—]\s|[.!?。！？](?:\s|$)|\n")


def cut_at_clause(text: str, length: int) -> str:
    """Return the beginning of a text up to the end of a clause, at most about ``length``, marked if cut."""
    line = one_line(text)
    if len(line) <= length:
        return line
    ends = [end.start() for end in _SOFT_END.finditer(line, length // 3, length)]
    cut = ends[-1] if ends else line.rfind(" ", length // 2, length)
    return (line[:cut] if cut > 0 else line[:length]).rstrip(" ,;:-–—") + " ..."
