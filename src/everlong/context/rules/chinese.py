"""The detection of rules and wishes in Chinese, by the shape of a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator

from everlong.context.rules.prose import FoundRule, cut_rule

_QUESTION = re.compile(
    r"[?？]\s*$|[吗呢么]\s*[。.!！]?$|^(?:为什么|为何|怎么|怎样|如何|是否|有没有|能不能|可不可以|要不要|谁|哪)|(?:是什么意思|什么意思|讲讲为什么|解释)"
)
_REPORTED = re.compile(
    r"^(?:他|她|他们|有人|老板|经理|同事|客户|老师|朋友|我(?:妹妹|弟弟|姐姐|哥哥|妈|爸|老婆|老公|同事|朋友|老板)|文档|报错|错误|日志|服务器|系统|程序|这个|那个|这段|这句|该)"
    r"|^我(?:从来|从不|总是|经常|每天|一直|以前)|说[过了:：]|写着|提示[:：]|信息是"
)
_ONCE = re.compile(
    r"这次|这一次|现在(?!开始|起)|暂时|今天|今晚|明天|刚才|等一下|先(?:不要|别|不)|先看|一下(?!子)|再说|这个文件|这一行|上一[个条]|第[一二三四五]个"
)
_STANDING = re.compile(
    r"以后|今后|从现在(?:开始|起)|从今(?:天|以后)|往后|接下来(?:的?所有|都|每)|后面(?:都|的)|一直到|始终|永远|一律|统一(?!一下)|默认|除非"
)
_EACH = re.compile(r"每次|每当|每个|每一|所有的?|任何|凡是|凡|全部|一切|各个|都")
_DEMAND = re.compile(
    r"必须|务必|一定要|需要|得(?=先)|要(?!是|么)|请|应该|应当|只能|只(?=用|改|推荐|支持|写|给|读|看|回答|需)|用|放在|按|写|加|带|注明|先问|不能|不得|不可以|不可|不准"
    r"|不许|不要|别|勿|禁止|严禁"
)
_FORBID = re.compile(
    r"(?:^|[，,、；;：:。\s])(?:请|也|都|并且|而且|但|但是|千万|绝对|在.{1,12}(?:里|中|时)|.{0,14}?)?(?:不要|别(?!的|人|墅|说)|不准|不许|不得|禁止"
    r"|严禁|切勿|请勿|不能(?!用了)|绝不|决不|不可以)"
)
_NOT_FORBID = re.compile(r"不要紧|别急|别担心|别客气|不能再.{0,6}了|不得不|差别|特别|分别|区别|级别|类别|个别|不要了")
_MUST = re.compile(
    r"必须|务必|一定要|只能|只(?:用|改|推荐|支持|写|给|回答)|严格|强制|不超过|不能超过|最多|至少|控制在|保持|尽量|统一用|优先"
)
_WISH = re.compile(
    r"我(?:们)?(?:更|比较|还是|特别|很|真的|一般|个人)*(?:喜欢|偏好|偏爱|倾向|希望你|想要你|不喜欢|讨厌|受不了|要求)|我的(?:偏好|习惯|要求)是|最好(?:都|每次|能)"
)
_MAKE = re.compile(
    r"^(?:请|帮我|给我|麻烦|你)?(?:写|做|生成|创建|加|添加|实现|画|讲|给).{0,4}?(?:[一二两三四五六七八九十]|几)(?:个|首|篇|段|份|张|条|些)"
)
_REMEMBER = re.compile(r"^(?:请)?(?:你)?(?:要)?(?:记住|记得|注意|牢记)")
_STATE = re.compile(r"(?:是)?(?:只读|不能动|不能改|不许动|禁止修改)")
_USE = re.compile(
    r"(?:^|[，,；;])(?:请)?(?:.{1,8})?用.{1,20}[，,]\s*(?:不要|别|不)用?|^(?:请)?用(?:中文|英文|英语|德语|法语|日语|简体|繁体).{0,6}(?:回答"
    r"|回复|写|交流|说)|统一(?:用|使用|采用|放)"
)


def chinese_rules(sentence: str, bare: str) -> Iterator[FoundRule]:
    """Yield the rules and wishes in a Chinese sentence; ``bare`` is the sentence without its quotes."""
    whole = cut_rule(sentence.strip())
    said = re.sub(r"^(?:好的?|嗯|另外|还有|对了|最后|首先|顺便|而且|并且|同时)[，,、\s]*", "", bare)
    if _QUESTION.search(said):
        return
    if _WISH.search(said) and not _THIS_ONE.search(said):
        is_rule = _STANDING.search(said) or _EACH.search(said)
        yield FoundRule(whole, "rule" if is_rule else "preference")
    elif not _REPORTED.search(said) and not _MAKE.match(said) and _is_rule(said):
        yield FoundRule(whole, "rule")


_THIS_ONE = re.compile(r"第[一二三]个|这个|那个|今天|今晚")


def _is_rule(said: str) -> bool:
    """Return whether a sentence, by its shape, holds for all future cases."""
    plain = _NOT_FORBID.sub("", said)
    demands = _DEMAND.search(plain) is not None
    if _STANDING.search(plain) and demands and not re.search(r"会(?!议|员|话)|再也", plain):
        return True
    if _ONCE.search(plain):
        return False
    if _FORBID.search(plain) or _USE.search(plain):
        return True
    if _REMEMBER.match(plain) and (demands or _STATE.search(plain)):
        return True
    if _EACH.search(plain) and demands and not re.search(r"会(?!议|员|话)|[过了][，,。！!]|了$|谢", plain):
        return not re.match(r"^我", plain)
    if _MUST.search(plain):
        return not re.match(r"^(?:它|肯定|这|那)", plain)
    return bool(
        re.search(
            r"(?:如果|要是|当|的时候|之前|时)[^，,]*[，,]\s*(?:就|请|先|要|必须|一定|都)|.{1,12}(?:之前|前|的时候)(?:请|先|要|必须|一定|都|称呼|用)",
            plain,
        )
    )
