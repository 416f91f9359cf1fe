"""XLIFF 1.2 and 2, TMX: only translations change, codes are never lost."""

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from document_tools import answered, opened
from foveate.documents.spans import DocumentError

FIRST = """<?xml version='1.0' encoding="utf-8" ?>\r
<!-- <source>none</source> -->
<xliff xmlns='urn:oasis:names:tc:xliff:document:1.2' xmlns:own="urn:x" version="1.2">
<file original="app.ts" source-language="en" target-language="fr" ><body>
<trans-unit id="1" own:note = 'a > b'><source>A <g id="1">black</g> dog<x id="2"/></source>
<note>n &#233; &quot;<![CDATA[<source>&]]></note></trans-unit>
<trans-unit id="2"><source>One</source><target>Un</target>
  <alt-trans><source>One</source><target>Une</target></alt-trans></trans-unit>
<trans-unit id="3" translate="no"><source>Three</source></trans-unit>
<group id="g" translate="no"><trans-unit id="4"><source>Four</source></trans-unit></group>
<trans-unit id="5"><source>Five</source><target own:z='3' state="new">Five</target></trans-unit>
</body></file></xliff>
"""
SECOND = """<x:xliff xmlns:x="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en"
 trgLang="fr"><x:file id="f"><x:unit id="1"><x:segment><x:source>A <x:pc id="1">dog</x:pc> runs
</x:source></x:segment></x:unit><x:unit id="2" translate="no"><x:segment><x:source>Two</x:source>
</x:segment></x:unit></x:file></x:xliff>"""


def shouted(text: str, kind: str = "xliff", **options: Any) -> str:
    return answered(opened(kind, text, **options)).decode()


def test_units_without_a_target_get_a_draft_and_nothing_else_changes() -> None:
    draft = 'state="needs-review-translation"'
    source = 'dog<x id="2"/></source>'
    target = f'<target {draft}>A <g id="1">BLACK</g> DOG<x id="2"/></target>'
    right = FIRST.replace(source, f"{source}\n{target}")
    right = right.replace("own:z='3' state=\"new\">Five", f"{draft} own:z='3'>FIVE")
    assert shouted(FIRST) == right
    assert shouted(right) == right, "a unit with a draft has a target"
    assert shouted(FIRST, draft=False) == right.replace("needs-review-translation", "translated")
    again = shouted(FIRST, again=True)
    assert "<target state=" in again and ">ONE</target>\n  <alt-trans><source" in again
    document = opened("xliff", FIRST)
    assert document.units == ["app.ts:1", "app.ts:5"] and document.note == ", 3 units left"


def test_segments_of_the_second_version() -> None:
    target = '<x:target>A <x:pc id="1">DOG</x:pc> RUNS\n</x:target>'
    end = "</x:source></x:segment></x:unit><"
    right = SECOND.replace(end, end.replace("</x:segment>", f"{target}</x:segment>"))
    right = right.replace("<x:segment>", '<x:segment state="initial">', 1)
    assert shouted(SECOND) == right
    assert '<x:segment state="translated">' in shouted(SECOND, draft=False)


def test_codes_that_begin_and_end_stay_around_their_words() -> None:
    pairs = [
        ("xliff", '<bpt id="1">&lt;b></bpt>', '<ept id="1">&lt;/b></ept>'),
        ("xliff", '<bx id="1" rid="a"/>', '<ex id="2" rid="a"/>'),
        ("xliff", '<sc id="1"/>', '<ec startRef="1"/>'),
        ("tmx", '<bpt i="1">&lt;b></bpt>', '<ept i="1">&lt;/b></ept>'),
    ]
    unit = '<xliff><file><trans-unit id="1"><source>{}</source></trans-unit></file></xliff>'
    memory = "<tmx><body><tu><tuv xml:lang='en'><seg>{}</seg></tuv></tu></body></tmx>"
    for kind, begin, end in pairs:
        form = unit if kind == "xliff" else memory
        inside = f"A {begin}black{end} dog {begin.replace('1', '7')} <ph>x</ph> runs"
        right = inside
        for word in ("black", " dog", " runs"):
            right = right.replace(word, word.upper())
        assert right in shouted(form.format(inside), kind, to="fr")
    segments = '<seg-source><mrk mtype="seg" mid="1">One</mrk></seg-source>'
    source = f"One <mrk mtype='protected'>Foo Bar</mrk></source>{segments}"
    done = shouted(unit.format(source).replace("</source></trans", "</trans"), to="fr")
    assert '<mrk mtype="seg" mid="1">ONE</mrk></target>' in done


CODES = """A dog. 3 {x} &amp; <x_id='1'/> <g>a_cat</g> <g/> <bx/> <ex/> <ph>p</ph> <!--c-->
    <mrk_mtype='protected'>Foo</mrk> _"""


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(CODES.split()), max_size=15),
    st.sampled_from(["le mot", "un. Deux", "a b c d e", "<b>"]),
)
def test_no_code_is_lost_whatever_the_answer(codes: list[str], answer: str) -> None:
    source = f"<source>{''.join(codes)}</source>".replace("_", " ")
    text = f"<xliff><file><trans-unit id='1'>{source}</trans-unit></file></xliff>"
    done = answered(opened("xliff", text, to="fr"), lambda sentence: answer).decode()
    etree.fromstring(done)
    names = re.compile(r"</?(?:g|x|bx|ex|ph|mrk)\b|<!--c-->")
    _, own, target = re.split("<source>|</source>", done)
    assert Counter(names.findall(own)) == Counter(names.findall(target))


def test_encodings_stay() -> None:
    for encoding in ("utf-16-le", "utf-16-be", "iso-8859-1"):
        mark = "\ufeff" if encoding.startswith("utf-16") else ""
        declared = "utf-16" if mark else encoding
        data = (mark + FIRST.replace("utf-8", declared)).encode(encoding)
        document = opened("xliff", data)
        texts = ["été « ∞ »"] * len(document.passages)
        done = document.written(texts)
        assert etree.fromstring(done).findtext(".//{*}target") == texts[0]
        assert done.startswith(data[:200])
    assert shouted("\ufeff" + FIRST) == "\ufeff" + shouted(FIRST)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("<tmx/>", {}, "a.xliff is not XLIFF: its root is <tmx>"),
        ("", {}, "a.xliff cannot be read as XML"),
        (FIRST.replace(' target-language="fr"', ""), {}, "a.xliff has no target-language: name"),
        (SECOND.replace('trgLang="fr"', ""), {}, r"a.xliff has no trgLang: name the language \("),
        (FIRST, {"to": "de"}, "a.xliff is to be translated into fr, not de"),
    ],
)
def test_what_cannot_be_translated_is_said_in_one_sentence(
    text: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(DocumentError, match=message):
        shouted(text, **options)


def test_a_language_that_is_missing_is_added() -> None:
    first = shouted(FIRST.replace(' target-language="fr"', ""), to="pt-BR")
    assert '<file target-language="pt-BR" original="app.ts" source-language="en" >' in first
    assert '<x:xliff trgLang="fr" xmlns:x=' in shouted(SECOND.replace('trgLang="fr"', ""), to="fr")
    assert "are to be" not in shouted(FIRST, to="fra_Latn")  # the same language, another code


MEMORY = """<?xml version='1.0' ?>\r
<tmx version = '1.4'><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>A &quot;dog&quot; <ph x='1' /></seg></tuv>
    <tuv xml:lang="de"><seg><![CDATA[Ein]]> Hund</seg></tuv>
</tu></body></tmx>
"""


def test_memories_change_in_their_translations_alone() -> None:
    before = "<ph x='1' /></seg></tuv>\n    "
    new = '<tuv xml:lang="fr"><seg>A "DOG" <ph x=\'1\' /></seg></tuv>'
    assert shouted(MEMORY, "tmx", to="fr") == MEMORY.replace(before, f"{before}{new}\n    ")
    german = shouted(MEMORY, "tmx", to="de", source="en", again=True)
    old = '<tuv xml:lang="de"><seg><![CDATA[Ein]]> Hund</seg></tuv>'
    assert german == MEMORY.replace(old, new.replace('"fr"', '"de"'))
