"""The explicit words that make a sentence a standing rule or take one back, one small table per language.

A rule is a slice of the text from one sentence end to the next, byte for byte, without a line break. Questions,
quotations, reports about others and one-time orders make none; nor does anything behind a label of unknown words, a
heading, or a line that is no speech. Precision comes before recall: the sentence itself stands in the summary anyway,
and a wrong rule would be obeyed for the rest of the work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from everlong.context.text import sentence_ends
from everlong.model.typed import SOURCE

_LONGEST_RULE = 600
_LONGEST_TYPED = 6_000  # what follows the first paragraph of a longer text is probably pasted
_WRAPPED = 50  # a shorter line in lower case is not the first part of a wrapped sentence
_FILLER = "\0"
_WORD = re.compile(r"[^\W_\u3040-\u9fff]+|[\u3040-\u9fff]{2,}")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class _Language(NamedTuple):
    """The words of a language with an alphabet; each field is a part of one pattern."""

    lead: str  # words before an order that do not change it
    verb: str  # orders about answers and work
    always: str  # always, never: adverbs that make an order stand, before it or (but for English) behind it
    order: str  # other orders that may follow such an adverb, but no statement
    since: str  # "from now on"
    rule: str  # beginnings that make a sentence a rule: prohibitions, duties, limits
    when: str  # "whenever", which an order must follow
    wish: str  # "I prefer", at the beginning of any clause
    veto: str  # reports about others, one-time orders
    later: str = ""  # words that make an order stand from behind it


_ENGLISH = _Language(
    lead=r"please|pls|also|and|but|so|ok(?:ay)?|then|yes|no|btw|important|note|rules?|one more thing|it(?:'s| is) "
    r"important that you|(?:make|be) sure(?: that)?(?: you| to)?|ensure(?: that)? you|try to|remember(?: to)?",
    verb=r"(?:use|write|run|answer|reply|respond|speak|ask|tell|show|give|include|add|put|keep|make|check|call|name"
    r"|format|explain|update|commit|push|cite|mention|say|edit|touch|modify|install|suggest|recommend|assume|invent"
    r"|repeat|share|log|rename|refactor|translate|spell|create|skip)\b",
    always=r"always|never(?:,? ever)?|under no circumstances(?: should you)?|do(?: not|n'?t) ever",
    order=r"(?!(?:mind|again|been|got|ha[dsv]e?|was|were|is|are|am|did|does|an?|the|in|on|at|to|of|with|for|from|by|so"
    r"|too|as|if|when|it|he|she|they|we|i|you|my|our|this|that|these|those|no|not|good|nice|great|better|glad|happy"
    r"|hard|easy|more|enough|before|seen|saw|knew|heard|felt|thought|said|told|went|came|made|took|found|understood"
    r"|could|would|should|will|may|can|need|want|like|know|think|understand|happen)\b(?!-)|[a-z]*(?:[^e]ed|ing"
    r"|[^su]s)\b)[a-z-]{2,}\b(?! \w+s[.!]*$)",
    since=r"from (?:now|here|today) on(?:wards?)?|(?:going|moving) forward|in (?:the )?future",
    rule=r"do(?: not|n'?t) (?:VERB(?! (?:it|that(?! (?:i|we|you))|them)\b)|[a-z]+ (?:any(?:thing)?|files) "
    r"(?!else))|only (?:ever )?(?:use\b|VERB(?! (?:the|me|my)\b))|(?:use|answer|respond)\b[^,;:]*\bonly\b(?! (?:one"
    r"|two|three|\d))|you (?:must|should|need to|have to|are(?: to)?) (?:always|never|only)\b(?! have)|you may (?:only"
    r"|never) VERB|you (?:must|may) not (?!have\b)|i(?:'d| would)? (?:want|need|like) you to (?:always|never|only|not"
    r"|stop|(?:answer|respond|use|ask|be|keep|call)\b(?! (?:the|an?|it)\b))|keep in mind that (?!was\b|it\b)"
    r"|remember to\b",
    later=r",? (?:always|never|ever)[.!]*$|, (?:always|never) |(?:whenever|every ?time|each time) (?:you|we|i"
    r"|something)\b|(?:before|after) (?:every|each) (?:commit|push|change|edit|answer|step)",
    when=r"whenever|every ?time|each time|any ?time",
    wish=r"i (?:(?:really|generally|usually|also|still) )*prefer\b(?! (?:it(?! over)|your|option|version|not|the (?!.* "
    r"(?:over|to|than)\b))\b)|i(?:'d| would) (?:much )?prefer (?!it|not|to|the)|i(?:'d| would) (?:much )?rather (?:you"
    r"|have|use|see|keep|.* than)\b|i like (?!it |the )[^,;]{2,60} (?:better|more than)|my preference (?:is|for)\b",
    veto=r"(?:he|she|they|docs?|documentation|readme|manual|guide|error|spec|boss|colleague|friend)\b[^,]* (?:sa(?:id"
    r"|ys?)|told|wrote|writes?|reads?|states?|mentions?|warns?|suggests?|recommends?)|told me|th(?:is|ese|ose) (?!repo"
    r"|project|codebase|conversation|chat|session|team|company)\w+|that (?:one|file|line)|the (?:first|second|third"
    r"|last|next|previous|other|failing)|in line \d+|while (?:i|we|it|the)|at (?:\d+|noon|one|five|six)|(?:for"
    r"|just) now|(?<!from )now[.!]*$|yet|tonight|tomorrow|yesterday|(?<!from )today|until|^(?:can|could|how|what|why)",
)
_GERMAN = _Language(
    lead=r"bitte|und|also|ok|okay|aber|übrigens|außerdem|wichtig|hinweis|regel|dann|noch etwas|generell|zuerst",
    verb=r"(?:(?!(?:\w*(?:eine|alle|diese|selbe)|habe|hätte|hatte|wäre|würde|sollte|könnte|müsste|wollte|konnte|musste"
    r"|bekomme|kriege|sehe|finde|verstehe|brauche|vergesse|viele|heute|leute|danke)\b)\w{3,}e|schreib|mach|gib|nimm"
    r"|lass|sag|frag|zeig|nutz|benutz|halt|sprich|push|\w+en sie)\b(?! ich\b)",
    always=r"immer(?! noch|,? wenn)|nie(?:mals)?|stets|grundsätzlich|auf keinen fall|unter keinen umständen",
    order=r"(?!(?!direkt|nicht|erst)\w+t\b|sollte|müsste|wird|kann|wieder)[^,;:]* (?!ge\w+|verstanden|bekommen"
    r"|vergessen|haben)(?-i:[a-zäöü]+e[lr]?n)[.!]*$|[^;:]*\bbitte\b",
    since=r"ab (?:jetzt|sofort|nun|heute)|von (?:nun|jetzt) an|in zukunft|(?:zu)?künftig|fortan",
    rule=r"(?:verwende|benutze?|nutze?|schreibe?|ändere|lösche|füge?|erwähne|sieze|installiere) "
    r"[^,;:]*\b(?:kein(?:e[nr]?)?|nichts?(?! mehr)|ausschließlich)\b|(?:verwende|benutze?|nutze?|antworte|sprich"
    r"|pushe) [^,;:]*\bnur\b(?! (?:zwei|drei|\d))|nur noch\b|du (?:sollst|darfst|musst|solltest) [^,;:]*?\b(?:immer|nie"
    r"|niemals|stets|nur|nicht)\b|\w+st du\b|ich (?:möchte|will|erwarte),? dass du [^,;:]*\b(?:immer|nie|niemals|stets"
    r"|nur|nicht)\b|(?:denke? daran|bedenke|behalte? im (?:kopf|hinterkopf)),? dass\b",
    when=r"jedes ?mal,? wenn|wann immer|immer,? wenn",
    wish=r"ich (?:bevorzuge|ziehe\b.*\bvor|(?:mag|lese|sehe|habe)\b.*\blieber|hätte (?:es )?lieber)\b(?! nicht| option"
    r"| variante| (?:den|die|das) (?!.* (?:als|statt)\b))|mir (?:ist|sind|wäre|wären)\b.*\blieber",
    veto=r"sagte?|steht|schreibt|meinte?|laut|heißt|diesmal|vorerst|noch nichts?|solange|jetzt (?:nicht|nur)(?! noch)"
    r"|(?<!ab )heute|morgen|bis|dies(?:e[nrsm]?)? (?!projekt|repo)\w+|(?:erst|zweit|letzt)e\w*|^\w+st du",
)
_FRENCH = _Language(
    lead=r"s'il (?:te|vous) pla[iî]t|stp|svp|et|aussi|mais|donc|alors|ok|important|note|règle|merci de|prière de"
    r"|veuillez|assure-toi de|assurez-vous de",
    verb=r"(?:(?:utilis|écri[sv]?|répond|mets?|mett|fai[st]?|lanc|ajout|gard|vérifi|demand|indiqu|cit|expliqu|donn"
    r"|montr|appell?|nomm|comment|test|inclu|commenc|format|tutoi|vouvoi|parl|signal|précis|propos|envoi|modifi|ferm"
    r"|limit)(?:e|s|ez)?(?:-(?:moi|le|les))?)\b",
    always=r"toujours|systématiquement|en aucun cas",
    order=r"\w+(?:er|ir|re)\b|il ne faut\b",
    since=r"à partir de maintenant|désormais|dorénavant|à l'avenir",
    rule=r"n(?:e |')(?:jamais \w+(?:er|ir|re)|(?:m'|me )?\w+ jamais|(?:utilise|écris|ajoute|mentionne|propose|modifie"
    r"|installe|suppose|invente|commite|pousse|touche|réponds|mets)z? (?:pas|que|aucune?))\b|(?:tu dois|vous devez"
    r"|il faut) (?:toujours|ne jamais)|il ne faut jamais|tu (?:réponds|utilises|écris)\b|gardez? à l'esprit que|(?:je "
    r"(?:veux|voudrais)|j'aimerais) que (?:tu|vous) [^,;:]*\b(?:toujours|jamais)\b|(?:utilise"
    r"|réponds)\b[^,;:]*\buniquement\b",
    when=r"(?:à )?chaque fois que",
    wish=r"je préf(?:ère|[éè]rerais)\b(?! (?:ne|celui|celle|ça|l'option|l[ea]s?)\b(?!.* (?:à|aux?|que)\b))(?= \S+ \S)"
    r"|j'aim(?:e|erais) mieux\b",
    veto=r"(?:dit|écrit|indique) (?:de|que)|selon|pour (?:l'instant|le moment)|aujourd'hui|hier|encore|(?<!partir de "
    r")maintenant|c(?:e|et|ette|es) (?!projet|dépôt|soit)\w+|jusqu'\w+|tant qu\S+|pendant|à \w+ heures|(?:premi|deuxi"
    r"|second)\w+",
)
_SPANISH_NOT = (
    r"(?:me |te |l[aoe]s? )?(?:(?:us|modifiqu|toqu|cambi|borr|elimin|instal|edit|ejecut|llam|invent|expliqu|utilic"
    r"|mencion|muestr|guard|contest)es|(?:añad|hag|pong|escrib|respond|incluy|sub|sugier)as)\b(?! (?:of|nada)\b)"
)
_SPANISH = _Language(
    lead=r"por favor|y|además|también|pero|entonces|ok|vale|importante|nota|regla|asegúrate de|recuerda|primero",
    verb=r"(?:usa|utiliza|escribe|ejecuta|responde|contesta|pregunta|pon|haz|añade|incluye|mantén|revisa|indica|cita"
    r"|explica|muestra|cierra|limita|empieza|habla|menciona|actualiza|avisa|señala|verifica|(?:di|da|avísa|pregúnta"
    r"|muéstra|tutéa|envía|lláma)me|(?:us|ejecut)ar|escribir|responder|incluir)\b",
    always=r"siempre(?! que)|nunca|jamás|bajo ninguna circunstancia|en ningún caso",
    order=_SPANISH_NOT,
    since=r"de (?:ahora|aquí|hoy) en adelante|a partir de (?:ahora|hoy)|desde ahora|en adelante",
    rule=r"no NOT|no olvides nunca\b|(?:debes|tienes que) [^,;:]*\bsiempre\b|ten (?:en cuenta|presente) que|quiero que "
    r"[^,;:]*\b(?:siempre|nunca|jamás)\b|recuerda \w+[aei]r\b|(?:usa|utiliza|responde|escribe"
    r"|habla)\b[^,;:]*\b(?:s[oó]lo|únicamente|exclusivamente)\b",
    when=r"cada vez que|siempre que",
    wish=r"(?:yo )?(?:prefiero|preferiría)\b(?! (?:no|así|l[aoe]s?|el|(?!usar|recib|ten|ver)\w+[aei]r)\b(?!.* (?:al?"
    r"|que)\b))(?= \S+ \S)|me gustan? más\b(?! (?:así|la|el)\b)",
    veto=r"dijo|dice|según|por ahora|de momento|todavía|aún|hoy(?! en)|mañana|ayer|hasta|mientras|a las \w+|que falla"
    r"|demasiad\w+|es[ao]|es?[st][aeo]s? (?!proyecto|repo)\w+|primer(?:as?|os)?(?= \w)|segund[ao]|últim[ao]",
)
_PORTUGUESE = _Language(
    lead=r"por favor|e|além disso|também|mas|então|ok|importante|nota|regra|certifique-se de|lembre-se de|primeiro",
    verb=r"(?:me )?(?:(?:us|rod|modifiqu|coloqu|apagu|adicion|edit|cri|alter|mostr|cit|indiqu|test|execut|verifiqu"
    r"|pergunt|expliqu|cham|coment|mencion|guard|instal|atualiz|utiliz|avis|invent|apont|fal)es?|(?:respond|escrev|ponh"
    r"|inclu|mex|remov|dig|mantenh|assum|sugir|exclu)as?|dê|feche|(?:us|rod|execut|test|cit)ar)\b",
    always=r"sempre(?! que)|nunca|jamais|em (?:hipótese alguma|nenhuma hipótese)|de forma alguma",
    order=r"(?:faça|envie|abrevie)s?\b",
    since=r"(?:de|a partir de) (?:agora|hoje)(?: em diante)?|daqui (?:em|para|pra) (?:diante|frente)|doravante",
    rule=r"não (?:us|modifiqu|coloqu|adicion|edit|alter|mencion|instal|invent|toqu|escrev|inclu|respond|sugir)[ae]s?\b"
    r"|(?:você|tu) (?:deves?|tem que) [^,;:]*\b(?:sempre|nunca)\b|(?:tenha|tem) em mente que|quero que "
    r"[^,;:]*\b(?:sempre|nunca)\b|(?:use|utilize|responda|escreva|fale)\b[^,;:]*\b(?:apenas|somente|só)\b|usa sempre\b",
    when=r"(?:toda|cada) vez que|sempre que",
    wish=r"(?:eu )?(?:prefiro|prefer(?:ia|iria))\b(?! (?:não|isso|assim|[ao]s?|(?!usar|receber|ter"
    r"|ver)\w+[aei]r)\b(?!.* (?:ao?s?|à|do que)\b))(?= \S+ \S)|(?:eu )?gosto mais d\w+",
    veto=r"disse|diz|segundo|escreveu|desta vez|por enquanto|ainda|(?<!de )hoje|amanhã|ontem|até|enquanto|às \w+"
    r"|que falha|isso|d?es[ts][ae]s? (?!projeto|repo)\w+|primeir(?:as?|os)|segund[ao]|últim[ao]",
)
_RUSSIAN = _Language(
    lead=r"пожалуйста|и|а|но|также|ещё|ок|хорошо|важно|правило|кстати|тогда|запомни|обязательно|поэтому|сначала",
    verb=r"(?:(?:использу|отвеча|запуска|добавля|указыва|спрашива|проверя|объясня|обновля|дела|сообща|называ|обраща"
    r"|упомина|предлага|трога|меня|редактиру|изменя|удаля|присыла|начина)й|пиши|говори|ставь|пушь)(?:те)?(?:сь|ся)?\b",
    always=r"всегда|никогда(?: не)?|ни в коем случае(?: не)?",
    order=r"(?!(?:очень|есть|здесь|опять|теперь|эти|они)\b)\w+(?:[аяую]й|[^лыиеоай\W]и|[^ш\W]ь)(?:те)?(?:сь|ся)?\b",
    since=r"с (?:этого момента|сегодняшнего дня)|впредь|отныне|в дальнейшем|в будущем",
    rule=r"не (?!дела)VERB(?! ничего[.!]*$)|(?:ты|вы) долж(?:ен|на|ны) [^,;:]*\b(?:всегда|никогда)\b|име(?:й|йте) в "
    r"виду, что|(?:отвечай|VERB)[^,;:]*\bтолько\b|(?:я )?хочу, чтобы (?:ты|вы) [^,;:]*\b(?:всегда|никогда)\b"
    r"|VERB[^,;:]*\b(?:перед каждым|каждый раз)\b",
    when=r"(?:каждый|всякий) раз,? когда",
    wish=r"я (?:бы )?предпоч(?:итаю|[её]л|ла)\b(?! не| вариант)(?=,? \S+ \S)|мне больше нрав[ия]тся\b",
    veto=r"сказа[лн]\w*|написано|говорит|пока|сейчас|сегодня|завтра|вчера|этот раз|эт(?:от|у|и|о|ого) (?!проект"
    r"|момент)\w+|(?:перв|втор|последн)\w+",
)
_CHINESE = (
    r"^(?!.*(?:[ぁ-ヿ]|说过?(?!的)|写着|据说|根据|这(?:次|一|个(?!项目|仓库)|两|里)|那个|暂时|先[不别]|现在(?!开始|起)"
    r"|[今明昨]天|目前|刚才|第[一二三\d](?!方)|前[一二两三\d]|应该|碰它|[吗呢]。?$|请问|为什么|怎么|是否"
    r"|能不能))(?:(?:请你?|另外|还有|对了|好的?|注意|重要|麻烦你?|[，,：:\s])*(?:(?:不要|别|禁止|严禁|不准|不许"
    r"|切勿)(?!紧|担心|着急|客气|误会|怕|想|说|忘|.{1,2}$|.*(?:了|其他的)[。！!]?$)|[只仅]能?(?:用|使用|写|回答|修改"
    r"|推荐|推送)|务必.*(?:每|所有|都)|(?:每次|每当|凡是).{2,}(?:都要|都请|都必须|请|务必|必须|要先|都先)|(?:记住"
    r"|牢记)[，,:：]?)|.*请(?:始终|总是|一律|每次|务必|不要)|(?:.*[，,；;])?(?:请你?|所以|你|记住|\s)*(?:(?:永远|绝对?"
    r"|千万|任何情况下都?)(?:不要|别|不能|不准|不许)(?!误会|担心)|(?:以后|今后|从现在(?:开始|起)|从今(?:往|以)后)(?!再"
    r"|有空)(?!.*会).{0,10}?(?:请|不要|别|必须|一律|都|只|用|先|要|叫我)|(?:总是|始终|一律|永远)(?:要|用|使用|先|以|把"
    r"|给|保持|写|回答|检查|确保|运行)|我(?:想|希望|要|需要)你.*(?:总是|始终|每次|以后[都不请]|永远|不要)|我(?:个人"
    r"|还是)?更喜欢(?!.{1,4}$)|我(?:个人)?偏好))"
)
_JAPANESE = (
    r"^(?!.*(?:と言|と書|とのこと|によると|この(?!プロジェクト)|その|今[はすの]|今回|[今明昨]日|まだ|まで|間は|\d時"
    r"|されるように|とりあえず|失敗した|番目|最[初後]の|次の|上司|彼|案[A-Z]|心配|気にし|遠慮|無理|何も|話を|(?:関数"
    r"|クラス|スクリプト|テスト|ボタン|機能)を(?:書|作|追加)))(?:.*(?:常に|必ず(?!しも)|いつも|絶対|決して|今後"
    r"|これから[はも]|以後|毎回|たびに|二度と|(?:だけ|のみ)[をで]?(?=使|答え|回答|書|お願)).*(?:ください|下さい"
    r"|お願いします|こと|なさい|ないで|て|ほしい(?:です)?|ように)ね?[。！!]*$|.*(?:使わ|書か|呼ば|[れら触]|(?:追加|変更"
    r"|編集|言及|プッシュ|push|コミット|マージ)し)ない(?:で(?:ください|下さい)|こと)[。！!]*$|.*(?:より.*|の)(?:方"
    r"|ほう)が(?:好き|いい)|.*を好みます)"
)
_OTHERS = (_GERMAN, _FRENCH, _SPANISH, _PORTUGUESE, _RUSSIAN)
_COMMON = _words("the you your is are i my it to of and with for at this that please from")
"""A sentence with one of these words is English."""
_CJK = (_CHINESE, _JAPANESE)
_AT_MOST = r"max\w*|máximo|at most|no more than|no máximo|не больше"
_IF = r"wenn|falls|quand|si|cuando|quando|se|если|когда"


@cache
def _pattern(words: _Language | str) -> re.Pattern[str]:
    """Return the pattern of a rule in a language; making one takes time, so that most are never made."""
    if isinstance(words, _Language):
        rule = words.rule.replace("VERB", words.verb).replace("NOT", words.order)
        lead = rf"(?:(?:{words.lead})\b[\s,:.!–—-]*){{0,4}}"
        near = r"(?:(?! (?:that|which|die|der|das|qui|que|котор\w+) )[^;:,])*?"
        # The words before the reason:
        said = r"(?:(?!, (?:because|since|as|it|i|weil|da|parce|car|porque|pois|потому)\b).)*"
        words = (
            rf"(?i)^(?!{said}\b(?:{words.veto})\b)(?:(?:(?P<stands>(?:.*?(?:[,;–—]|\s-)\s*)?{lead}"
            rf"(?:{words.always}|{words.since})\b[\s,:]+|{lead}(?:{words.when})\b[^,]*(?:,[^,]*)?,\s*)|(?:{_IF})\b[^,]*,\s*)?{lead}(?:{rule}"
            rf"|{words.verb}(?(stands)|{near}\b(?:{words.later or words.always}|{words.since}))"
            rf"|(?(stands)(?:{words.always})?\s*(?=\S)(?:{words.order}|{words.wish}|{_AT_MOST})|(?!)))"
            rf"|(?:.*?(?:[,;:–—]|\b(?:and|so|but|because|since|given|in))\s*)?{lead}(?:{words.wish}))"
        )
    return re.compile(words)


def is_rule(sentence: str) -> bool:
    """Return whether a sentence, with code and quotations masked, lays down a rule."""
    if len(sentence) > _LONGEST_RULE or sentence.endswith(("?", "？")):
        return False
    others = _OTHERS if _COMMON.isdisjoint(_WORD.findall(sentence.lower())) else ()
    languages = (_ENGLISH, *others, *(() if sentence.isascii() else _CJK))
    return any(_pattern(language).match(sentence) for language in languages)


# -- sentences ---------------------------------------------------------------------------------------------------------

_MASKED = re.compile(
    r"`[^`\n]+`|(?<!\w)['‘][^'’\n]+['’](?!\w)"
    r"|\"[^\"]*?(?:\"|\n[ \t]*\n|\Z)|“[^”]*?(?:”|\Z)|„[^„“”]*+[“”]|[«»‹][^«»‹›]*+[«»›]|「[^「」]*+」|『[^『』]*+』"
)
"""Code and quotations in a line."""
_LIST_MARK = re.compile(r"\s*(?:(?:[-*+•–]|\d{1,3}[.)]|[a-z][.)])\s+)?(?:\[[ x]\]\s+)?", re.IGNORECASE)
_OWN_WORDS = (
    r"(?:as|like) i (?:already )?(?:said|told|mentioned)|for this (?:project|repo|session)|keep in mind|p\.?[ds]|my|i"
    r"|me|your?|our|we|here|are|have|want|would|like|need|should|must|follow(?:ing)?|the(?:se)?|few|some|all|general|an?"
    r"|one|two|three|more|things?|goals?|tasks?|reminder|notes|preferences?|constraints?|requirements?"
    r"|wie (?:ich schon sagte|gesagt)|merke? dir|hier|sind|meine?|die|folgende|regeln|beachten?|vorlieben|anforderungen"
    r"|comme je (?:te |vous )?l'ai (?:déjà )?dit|n'oublie[zs]? pas|rappel|voici|mes|les|règles|préférences"
    r"|como (?:ya |te |eu |já )*(?:dije|disse)|mis|las|reglas|preferencias|lembre-se|minhas|regras|preferências"
    r"|как я (?:уже )?(?:говорил|сказал)а?|не забудь|мои|вот|правила|предпочтения"
)
_OWN_CJK = "我的|请|记住|规则|要求|注意|重要|另外|以下|是|偏好|我说过|ルール|お願い|好み|私の|は|の"
_LEADS = "|".join(f"{one.lead}|{one.since}" for one in (_ENGLISH, *_OTHERS))
_OWN_LABEL = re.compile(
    rf"(?i)(?!\W*(?:an?|i|me|you|we|ich|as)\W*$)(?:[\W\d_]*+(?:(?:{_LEADS}|{_OWN_WORDS})\b|{_OWN_CJK}))++[\W\d_]*"
)
"""A label or heading before a person's own words, of these words alone; any other may introduce somebody else's."""
_NO_SPEECH = re.compile(
    r"(?!\[Image)[ \t]*(?:[^\w\s\0(¿¡【@/.*_•–-]|[@/._-](?![\w\s_])|-(?=\w)|[*_]{3}|[*_]+[^.!?]+[*_]:?$|\d\d?:\d"
    r"|\S{2,}> |[\w.]+ ?=\s|(?=[!-~]*\w[./_]\w)[!-~]+$)|(?: {2}|\t)(?!\s*(?:[-*•]|\d{1,3}[.)])\s)"
    r"|[^\n]*(?:[{}|│]|\d:\d\d(?:\W| ?[AP]M)?|[.!?\0] [-–—]{1,2} ?\w+(?: \w+)?)$|(?!\s*[-*•\d])[^\n]*;$"
    r"|[^\n]*(?:\t|[^.!?:\s] {2,}\S| \| )"
)
"""A heading, a divider; a line of code, of a table, of a log, of a quotation with its author; indented, in brackets."""

_REPORT = re.compile(
    rf"(?i)(?!.*\b(?:i|you|we|my|me|our|us|please|always|never|must)\b)(?=.*\b{SOURCE})(?=.*[^\W_]{{2}}ed\b)"
    r"(?:[^.!?]|[.!?](?=\S))*[.!]?|\([^()]*\d\)"
)
"""A line that tells what became of a command, tool or file, and names no person: a harness announces a result."""


@lru_cache(maxsize=1_024)
def sentences(text: str) -> tuple[tuple[str, str], ...]:
    """Return the sentences of a person's own speech in a typed text, as they stand and with quotations masked.

    There are none behind a label of other words than a person's own, a program's report, or a line that is no speech.
    """
    text = text if len(text) <= _LONGEST_TYPED else text.lstrip().partition("\n\n")[0][:_LONGEST_TYPED]
    masked = _MASKED.sub(_mask, text).replace("’", "'")
    found: list[tuple[str, str]] = []
    before = 0  # the sentences before the paragraph
    for start, end in pairwise(accumulate(map(len, masked.splitlines(keepends=True)), initial=0)):
        line = masked[start:end].rstrip()
        if not line:
            before = len(found)
        elif _OWN_LABEL.fullmatch(line):
            continue
        elif (_NO_SPEECH.match(line) or _REPORT.fullmatch(line)) and not _is_wrapped(masked, start):
            return tuple(found[:before])
        else:
            for first, last, is_whole in _spans(masked, start, end):
                if (first := _behind_labels(masked, first, last)) < 0:
                    return tuple(found)
                said = text[first:last].strip()
                if is_whole and len(said.splitlines()) == 1:
                    found.append((said, masked[first:last].strip().replace("*", "")))
    return tuple(found)


def _behind_labels(text: str, first: int, last: int) -> int:
    """Return where a sentence begins behind the labels that a person puts before it; -1 behind any other label."""
    for at in range(first, last):
        is_end = not text[at + 1 : at + 2].strip("*_").strip() or "\u3040" <= text[at - 1] <= "\u9fff"
        head = text[first:at] if text[at] in "：】" or (text[at] == ":" and is_end) else None
        if head is None or (head.rfind("(") > head.rfind(")") and text.find(")", at, last) >= 0):  # an aside
            continue
        if is_rule(head.replace("*", "")):
            return first
        if not _OWN_LABEL.fullmatch(head):
            return -1
        first = at + 1
        while first < last and text[first] in " \t*_":
            first += 1
    return first


def _mask(found: re.Match[str]) -> str:
    """Return filler of the same length; the full stop of a quotation that ends a sentence stays."""
    said, following = found[0], found.string[found.end() : found.end() + 2]
    kept = 2 if said[-2:-1] in (".", "!") and following[:1] == " " and following[1:].isupper() else 0
    return _FILLER * (len(said) - kept) + said[len(said) - kept :]


def _spans(text: str, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the spans of the sentences in a line, and whether each begins and ends in it."""
    mark = _LIST_MARK.match(text, start, end)
    first = mark.end() if mark else start
    stop = start + len(text[start:end].rstrip())
    is_begun = _is_wrapped(text, start)
    for found in sentence_ends(text, first, stop):
        yield first, found.start() if found[0].startswith(",") else found.end(), not is_begun
        is_begun, first = False, found.end()
        while first < stop and text[first].isspace():
            first += 1
    if first < stop:
        yield first, stop, not is_begun and not _is_wrapped(text, end)


def _is_wrapped(text: str, place: int) -> bool:
    """Return whether a sentence goes on over the line break before a place."""
    before = "".join(text[max(0, place - _LONGEST_RULE) : place].splitlines()[-1:]).strip()
    is_open = (len(before) >= _WRAPPED or before[:1].isupper()) and before[-1] not in ".!?:;。！？"
    return is_open and text[place : place + _WRAPPED].lstrip()[:1].islower()


# -- taking a rule back ------------------------------------------------------------------------------------------------

_TAKES_BACK = re.compile(
    r"(?i)(?P<rule>\b(?:(?:forget|ignore|drop|cancel) (?:about )?(?:(?:the|my|that) (?:\w+ )?(?:rule|instruction"
    r"|preference)|what i (?:said|told you) about)|the rule (?:about|on|for|against)\b.* no longer applies|(?:vergiss"
    r"|streiche) (?:die regel|was ich)|die regel\b.* gilt nicht mehr|oublie[zs]? (?:la règle|ce que j'ai dit)|olvida "
    r"(?:la regla|lo que dije)|esqueça (?:a regra|o que eu disse)|забудь(?:те)? (?:про )?правило|отмени(?:те)? правило)"
    r"|(?:取消|忘掉|忘了).*(?:规则|要求|的话)|ルール.*(?:忘れて|取り消し|無効))|(?P<order>\b(?:you (?:no longer (?:need"
    r"|have) to|do(?:n't| not) (?:need|have) to\b.* any ?(?:more|longer))|no need to\b.* any ?more|du (?:musst"
    r"|brauchst)\b.* nicht mehr|(?:tu n'as|vous n'avez) plus besoin de|ya no (?:hace falta|tienes que)|não precisa mais"
    r"|больше не (?:нужно|надо))|^(?:please )?(?:you can )?stop \w+ing|(?:不用|不必|不需要)再.*了"
    r"|もう.*なくて(?:も)?いい)|(?P<ban>\b(?:you (?:can|may)\b.* again|(?:is|are) (?:fine|ok|okay|allowed) (?:again"
    r"|now)|darfst\b.* wieder|(?:ist|sind) wieder (?:erlaubt|ok)|(?:tu peux|vous pouvez) (?:de|à) nouveau|puedes\b.* "
    r"(?:de nuevo|otra vez)|pode\b.* (?:de novo|novamente)|снова можно)|(?:又|现在|重新)可以.*了|また.*てもいい)"
)
_NEGATION = re.compile(
    r"(?i)\b(?:never|not|no|don'?t|nie|niemals|nicht|keine?|jamais|ne|nunca|não|не)\b|n'|不|别|禁|ない"
)
_EMPTY = _words("using with your are it me don anymore sur über sobre usar usa verwende utilise используй") | {
    *_WORD.findall(_TAKES_BACK.pattern),
    *(word for one in (_ENGLISH, *_OTHERS) for word in _WORD.findall(f"{one.lead} {one.always} {one.since}")),
}
"""Words that do not tell what a rule is about; neither do the verbs of most rules."""
_VERBS = [verb.removesuffix("e") for verb in _WORD.findall(_ENGLISH.verb) if len(verb) > 2]


def taken_back(sentence: str, rules: Sequence[str]) -> str | None:
    """Return the one rule that a sentence takes back; None if none fits, or several do equally well."""
    said = _TAKES_BACK.search(sentence)
    if said is None or sentence.endswith(("?", "？")):
        return None
    shares = {rule: _share(sentence, rule) for rule in rules if _is_of_kind(rule, said.lastgroup)}
    best = max(shares.values(), default=0.0)
    found = [rule for rule, share in shares.items() if share == best]
    return found[0] if best >= 0.6 and len(found) == 1 else None


def _is_of_kind(rule: str, kind: str | None) -> bool:
    """Return whether a rule is of the kind that is taken back: any, one that orders, or one that forbids."""
    negation = _NEGATION.search(rule.replace("’", "'"))
    is_order = negation is None or negation.start() > len(rule) // 2
    return kind == "rule" or (is_order if kind == "order" else negation is not None)


def _share(sentence: str, rule: str) -> float:
    """Return the share of a sentence's telling words that a rule has too; of Han and kana, two pairs are enough."""
    named, words = _telling_words(sentence), _telling_words(rule)
    if names := [word for word in named if word < "\u3040"]:
        return sum(any(_is_same(name, word) for word in words) for name in names) / len(names)
    return len(named & words) / 10 + 0.5 if len(named & words) > 1 else 0.0


def _telling_words(text: str) -> set[str]:
    words = _WORD.findall(text.lower())
    pairs = {word[at : at + 2] for word in words if word >= "\u3040" for at in range(len(word) - 1)}
    verbs = {word for word in words for verb in _VERBS if word.startswith(verb) and len(word) < len(verb) + 5}
    return pairs | {word for word in words if "\u3040" > word not in _EMPTY and word not in verbs and len(word) > 1}


def _is_same(word: str, other: str) -> bool:
    """Return whether two words are the same but for their endings."""
    stem = max(3, min(len(word), len(other)) - 2)
    return word == other or (word[:stem] == other[:stem] and len(word) > 2 < len(other))
