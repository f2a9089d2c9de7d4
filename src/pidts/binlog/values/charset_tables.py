"""Collation ids, and the upper halves of rare code pages that servers have and Python lacks."""

# Tables of characters are full of characters that look like others.
# ruff: noqa: RUF001

from __future__ import annotations

UNDEFINED = "\ufffe"
"""Stands for a byte that is not a character."""

COLLATIONS = {
    "armscii8": "32 64",
    "ascii": "11 65",
    "big5": "1 84",
    "binary": "63",
    "cp1250": "26 34 44 66 99",
    "cp1251": "14 23 50-52",
    "cp1256": "57 67",
    "cp1257": "29 58-59",
    "cp850": "4 80",
    "cp852": "40 81",
    "cp866": "36 68",
    "cp932": "95-96",
    "dec8": "3 69",
    "eucjpms": "97-98",
    "euckr": "19 85",
    "gb18030": "248-250",
    "gb2312": "24 86",
    "gbk": "28 87",
    "geostd8": "92-93",
    "greek": "25 70",
    "hebrew": "16 71",
    "hp8": "6 72",
    "keybcs2": "37 73",
    "koi8r": "7 74",
    "koi8u": "22 75",
    "latin1": "5 8 15 31 47-49 94",
    "latin2": "2 9 21 27 77",
    "latin5": "30 78",
    "latin7": "20 41-42 79",
    "macce": "38 43",
    "macroman": "39 53",
    "sjis": "13 88",
    "swe7": "10 82",
    "tis620": "18 89",
    "ucs2": "35 90 128-151 159 640-642",
    "ujis": "12 91",
    "utf16": "54-55 101-124 672-674",
    "utf16le": "56 62",
    "utf32": "60-61 160-183 736-738",
    "utf8mb3": "33 76 83 192-215 223 576-578",
    "utf8mb4": "45-46 224-247 255-300 303-323 608-610",
}
"""The ids of each charset's collations on MySQL 5.6 to 9.7 and MariaDB."""

MARIADB_NOPAD = 1024
"""MariaDB's id of the NO PAD version of a collation is higher by this number."""

MARIADB_UCA1400 = {"utf8mb3": 2048, "utf8mb4": 2304, "ucs2": 2560, "utf16": 2816, "utf32": 3072}
"""The first id of MariaDB's UCA 14.0.0 collations; each charset has room for 256."""

ARMSCII8 = (
    "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97"
    "\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆ"
    "նՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'"
)

GEOSTD8 = (
    "€\ufffe‚\ufffe„…†‡\ufffe‰\ufffe‹\ufffe\ufffe\ufffe\ufffe\ufffe‘’“”•–—\ufffe\ufffe\ufffe›\ufffe"
    "\ufffe\ufffe\ufffe\xa0¡¢£¤¥¦§¨©ª«¬\xad®¯°±²³´µ¶·¸¹º»¼½¾¿აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ"
    "\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe"
    "\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe№\ufffe\ufffe"
)

KEYBCS2 = (
    "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀"
    "αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xa0"
)

DEC8 = (
    "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97"
    "\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0¡¢£\ufffe¥\ufffe§¤©ª«\ufffe\ufffe\ufffe\ufffe°±²³\ufffeµ¶·"
    "\ufffe¹º»¼½\ufffe¿ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏ\ufffeÑÒÓÔÕÖŒØÙÚÛÜŸ\ufffeßàáâãäåæçèéêëìíîï\ufffeñòóôõöœøùúûüÿ"
    "\ufffe\ufffe"
)

BIG5_ADDED = {bytes([0xF9, 0xD6 + place]): character for place, character in enumerate("碁銹裏墻恒粧嫺")}


def _euc(rows: range, prefix: bytes = b"") -> list[bytes]:
    """Returns the bytes of each character in some rows of Japan's table of 94 by 94 characters, after a prefix."""
    return [prefix + bytes([row, cell]) for row in rows for cell in range(0xA1, 0xFF)]


def _row_13_of_cp932() -> list[str]:
    places = [*range(0x40, 0x7F), *range(0x80, 0x9F)]
    return [bytes([0x87, place]).decode("cp932", "ignore") for place in places]


EUC_USER_DEFINED = {
    place: chr(0xE000 + number)
    for number, place in enumerate(_euc(range(0xF5, 0xFF)) + _euc(range(0xF5, 0xFF), b"\x8f"))
}
"""The private characters U+E000 to U+E757, which ujis and eucjpms have in rows that Japan's standards leave free."""

_IBM = (
    "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤﨎咊坙﨏塚增寬峵嵓﨑德悅愠敎昻晥晴朗栁﨓﨔橫櫢淸淲瀨凞猪甁"
    "皂皞益礰礼神祥福竧靖精綠緖羽荢﨟薰蘒﨡蠇諸譿賴赶﨣﨤逸郞都鄕﨧﨨閒隆﨩霻靍靑飯飼館馞髙魲鶴黑"
)
EUCJPMS_ADDED = dict(zip(_euc(range(0xF3, 0xF5), b"\x8f")[-len(_IBM) :], _IBM, strict=True))
"""The characters that eucjpms adds to ujis: NEC's row 13 in cp932's version, and IBM's characters."""
EUCJPMS_ADDED |= {
    place: character
    for place, character in zip(_euc(range(0xAD, 0xAE)), _row_13_of_cp932(), strict=True)
    if not character.isascii()
}
