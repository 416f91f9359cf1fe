"""Passages: whatever a model answers, protected spans, markup and white space come out."""

import re
from collections import Counter
from collections.abc import Sequence

import html5lib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from document_tools import backwards, diagonal, unlinked
from foveate.config import ConfigError
from foveate.documents.html import html_passage
from foveate.documents.spans import Piece, PieceWriter, Rules
from foveate.documents.translate import Aligner, Passage, blanks, joined_all, text_passage

Links = list[list[tuple[int, int]]]
TEXT_OF_SPANS = "https://a.org/x?b=1&c=2 www.a-b.org/x a.b+c@d.org 17 3.14 10:30 {{name}} {x} ${y} "
SPANS = f"{TEXT_OF_SPANS}%s %d %(x)s <br/> </b>".split()
TEXT_OF_WORDS = "dog A chien l'eau It é 東京。 Mr. end. Why? (so) 50% x2"
WORDS = TEXT_OF_WORDS.split()
BLANKS = [" ", " ", " ", "  ", "\n", "\n\n", "\t", "\r\n"]
printed = st.characters(exclude_categories=("Cc", "Cs", "Cn"))
word = st.one_of(st.sampled_from(SPANS), st.sampled_from(WORDS), st.text(printed, max_size=4))
text = st.lists(st.tuples(word, st.sampled_from(["", *BLANKS])), max_size=12).map(
    lambda pairs: "".join(w + b for w, b in pairs)
)
hostile = st.one_of(text, st.text(max_size=30), st.sampled_from(["{", "}", "http:/", "%"]))
ALIGNERS = [diagonal, backwards, unlinked]


def joined(passage: Passage, answers: Sequence[str], align: Aligner) -> str:
    return joined_all([passage], [answers], align)[0]


def drawn(data: st.DataObject, passage: Passage, answer: st.SearchStrategy[str]) -> list[str]:
    """An answer to each sentence."""
    count = len(passage.sentences)
    return data.draw(st.lists(answer, min_size=count, max_size=count))


@settings(max_examples=100, deadline=None)
@given(text, st.data())
def test_any_text_and_any_answer_keep_the_spans(given_text: str, data: st.DataObject) -> None:
    rules = Rules()
    passage = text_passage(given_text, rules)
    answers = drawn(data, passage, hostile)
    output = joined(passage, answers, data.draw(st.sampled_from(ALIGNERS)))
    assert rules.count([output]) == rules.count([given_text])
    if all(s.cleaned(a, rules) for s, a in zip(passage.to_translate, answers, strict=True)):
        assert layout(output) == layout(given_text)


def layout(text: str) -> tuple[list[str], str]:
    """The line breaks and tabs of a text, and the white space around it."""
    edges = re.sub(r"\S(?:.*\S)?", "", text, count=1, flags=re.DOTALL)
    return re.findall(r"[\n\r\t]", text), edges


@settings(max_examples=60, deadline=None)
@given(text)
def test_the_same_answers_give_the_same_words(given_text: str) -> None:
    passage = text_passage(given_text)
    output = joined(passage, passage.sentences, diagonal)
    assert "".join(output.split()) == "".join(given_text.split())
    for sentence in passage.sentences:
        assert sentence == " ".join(sentence.split())
        assert sentence


@settings(max_examples=100, deadline=None)
@given(
    st.text("abc .\n", max_size=30),
    st.sampled_from([r"a", r"b+", r"\w+", r".*", r"(?<=a )b", r"x*", r"a\s*b", r"(a)\1"]),
    st.data(),
)
def test_patterns_of_ones_own(given_text: str, pattern: str, data: st.DataObject) -> None:
    rules = Rules(own=(pattern,))
    passage = text_passage(given_text, rules)
    output = joined(passage, drawn(data, passage, st.text("abc .\n", max_size=9)), diagonal)
    assert rules.count([output]) == rules.count([given_text])


@pytest.mark.parametrize(
    "span", ["{% if x %}", "<%= x %>", "<0>", "</0>", r"\n", "$x", "@x", ":x_y"]
)
def test_spans_of_templates_stay_as_often_as_they_are_there(span: str) -> None:
    passage = text_passage(f"a dog {span} sleeps.")
    for answer in ("LE CHIEN DORT.", f"LE {span} {span.upper()}X DORT."):
        assert joined(passage, [answer], diagonal).count(span) == 1
    assert passage.sentences == ["a dog sleeps."]


def test_a_span_behind_one_that_overlaps_is_protected() -> None:
    rules = Rules(own=("``[^`]+``", "`[^`]+`"))
    found = [span for span, hidden in rules.spans("``a`` or `b` and ``c`` or `d`")]
    assert found == [(0, 5), (9, 12), (17, 22), (26, 29)]
    with pytest.raises(ConfigError, match=r"'\(' is not a regular expression"):
        Rules(own=("(",))


def test_spans_go_where_their_neighbours_are_aligned() -> None:
    for text, sentence in (
        ("See https://x.org/a, {{name}}: 3 black dogs.", "See,: 3 black dogs."),
        ("Ask {{name}} about dogs (a@b.org).", "Ask about dogs."),
    ):
        assert text_passage(text).sentences == [sentence]
    passage = text_passage("The dog {{name}} runs to %s.")
    assert passage.sentences == ["The dog runs to."]
    links = [[(0, 0), (1, 1), (2, 3), (3, 4), (4, 5)]]
    result = joined(passage, ["Le chien là court vers."], lambda pairs: links)
    assert result == "Le chien {{name}} là court vers %s."


def test_numbers_are_seen_and_mended() -> None:
    passage = text_passage("It has 3 dogs and 12 cats.")
    assert passage.sentences == ["It has 3 dogs and 12 cats."]
    assert joined(passage, ["3 4 chiens et 12 chats 12."], diagonal) == "3 chiens et 12 chats."
    assert joined(passage, ["Des chiens."], diagonal).count("12") == 1


def test_where_sentences_end() -> None:
    result = text_passage(
        "Mr. Smith runs. He said: “Stop!” (Why?) Fig. 3, e.g. this.  I. Newton sat"
        "\n\nA title\n- one"
    )
    expected = ["Mr. Smith runs.", "He said: “Stop!”", "(Why?)", "Fig. 3, e.g. this."]
    assert result.sentences == [*expected, "I. Newton sat", "A title", "one"]
    assert text_passage("東京です。京都です。").sentences == ["東京です。", "京都です。"]
    assert blanks("See https://x.org. And so", [(4, 17)]) == [(18, 19)]


def test_what_needs_no_model_is_not_asked() -> None:
    for saved in ("", " \n", "https://x.org", "17 %", "...", "{{a}} {{b}}\n\n%s"):
        passage = text_passage(saved)
        assert passage.sentences == []
        assert joined(passage, [], diagonal) == saved


def test_many_passages_are_linked_at_once() -> None:
    texts = ("A {{x}} b.", "C d.", "E {{y}} f. G %s h.")
    passages = [text_passage(text) for text in texts]
    requested = []

    def align(pairs: Sequence[tuple[str, str]]) -> Links:
        requested.append(len(pairs))
        return diagonal(pairs)

    outputs = joined_all(passages, [p.sentences for p in passages], align)
    assert outputs == ["A {{x}} b.", "C d.", "E {{y}} f. G %s h."]
    assert requested == [3]


INLINE = ["b", "i", "a", "span", "em", "code", "q"]
attribute = st.sampled_from(["", ' class="x"', ' title="a &amp; &quot;b&quot;"', ' translate="no"'])


@st.composite
def inline(draw: st.DrawFn, depth: int = 0, outside: tuple[str, ...] = ()) -> str:
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.integers(0, 5))
        if kind < 3 or depth > 2:
            plain = draw(st.sampled_from([*SPANS, *WORDS, "a", "the", "&", "<", "\xa0"]))
            plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace("\xa0", "&nbsp;")
            parts.append(plain + draw(st.sampled_from(["", " ", " ", ". "])))
        elif kind == 3:
            parts.append(draw(st.sampled_from(['<img src="x">', "<br>", "<!-- c -->", "<wbr>"])))
        else:
            name = draw(st.sampled_from([n for n in INLINE if n not in outside]))
            inner = draw(inline(depth + 1, (*outside, *(("a",) if name == "a" else ()))))
            space = draw(st.sampled_from(["", " "]))
            parts.append(f"<{name}{draw(attribute)}>{inner}</{name}>{space}")
    return "".join(parts)


block = st.builds(
    lambda name, inner, end: f"<{name}>{inner}</{name}>{end}",
    st.sampled_from(["p", "h1", "div", "pre"]),
    inline(),
    st.sampled_from(["", "\n", "  "]),
)
cells = st.lists(inline().map("<td>{}</td>".format), min_size=1, max_size=3).map("".join)
rows = cells.map("<table><tbody><tr>{}</tr></tbody></table>".format)
items = (
    st.lists(inline().map("<li>{}</li>".format), max_size=3).map("".join).map("<ul>{}</ul>".format)
)
fragment = st.lists(st.one_of(block, rows, items, inline()), max_size=4).map("".join)


def elements(html: str) -> Counter[str]:
    """Every element with its attributes, as another parser reads them; it has to find no fault."""
    parser = html5lib.HTMLParser(strict=False, namespaceHTMLElements=False)
    tree = parser.parseFragment(html)
    assert not parser.errors, (html, parser.errors)
    tags = ((e.tag if isinstance(e.tag, str) else "!", e.attrib) for e in tree.iter())
    return Counter(f"{tag} {sorted(attributes.items())}" for tag, attributes in tags)


@settings(max_examples=80, deadline=None)
@given(fragment, st.data())
def test_valid_html_stays_valid(html: str, data: st.DataObject) -> None:
    rules = Rules()
    passage = html_passage(html, rules)
    output = joined(passage, drawn(data, passage, hostile), data.draw(st.sampled_from(ALIGNERS)))
    assert elements(output) == elements(html)
    assert rules.count(nodes(output)) == rules.count(nodes(html))
    same = joined(passage, passage.sentences, diagonal)
    before, after = ("".join("".join(nodes(text)).split()) for text in (html, same))
    assert sorted(after) == sorted(before) and elements(same) == elements(html)


def nodes(html: str) -> list[str]:
    """The texts between tags, read by another parser."""
    tree = html5lib.parseFragment(html, namespaceHTMLElements=False)
    texts = (text for e in tree.iter() if isinstance(e.tag, str) for text in (e.text, e.tail))
    return [text for text in texts if text]


ODD_TAGS = ["<p>", "</p>", "<a>", "</b>", "<table>", "<tr>", "<td", "&", "<!--", "<b>", "<i x='"]
ODD_TAGS += ["</table>", "<plaintext>", "<svg>", "<select>", "<html>", "<br>", "dog. Cat", "{{x}}"]
odd = st.lists(st.sampled_from([*ODD_TAGS, " "]) | st.text(max_size=5), max_size=12).map("".join)


@settings(max_examples=60, deadline=None)
@given(odd, st.data())
def test_no_markup_is_too_odd(html: str, data: st.DataObject) -> None:
    passage = html_passage(html)
    joined(passage, drawn(data, passage, hostile), diagonal)


def test_inline_elements_go_with_their_words() -> None:
    passage = html_passage('<p>A <b>black</b> dog. <a href="x?a=1&b">Read <i>more</i>.</a></p>')
    assert passage.sentences == ["A black dog.", "Read more."]
    links = [[(0, 0), (1, 2), (2, 1), (3, 3)], [(0, 1), (1, 0), (2, 2)]]
    result = joined(passage, ["Un chien noir.", "Plus lire."], lambda pairs: links)
    assert result == ('<p>Un chien <b>noir</b>. <a href="x?a=1&amp;b"><i>Plus</i> lire.</a></p>')


def test_what_html_leaves_alone() -> None:
    html = (
        '<!DOCTYPE html><html lang="en"><head><title>My dog</title><style>p{}</style></head>'
        '<body><script>let dog = "x < 3"</script><p translate="no">A dog</p>'
        "<pre>the  dog</pre><p>Run <code>a dog</code> now.</p></body></html>"
    )
    passage = html_passage(html)
    assert passage.sentences == ["My dog", "Run now."]
    assert joined(passage, passage.sentences, diagonal) == html


def test_html_as_deep_as_it_likes() -> None:
    for name in ("b", "div"):
        html = f"<{name}>" * 2000 + "A dog." + f"</{name}>" * 2000
        passage = html_passage(html)
        output = joined(passage, passage.sentences, diagonal)
        assert output.count(f"</{name}>") == 2000 and (name == "b" or output == html)


@pytest.mark.parametrize(
    ("after", "text", "written"), [("%", "% more", "7% more"), ("", "%", "7 %")]
)
def test_what_was_glued_to_a_protected_piece_stays_glued(after, text, written) -> None:
    writer = PieceWriter()
    writer.protected([Piece("7")], after=after)
    writer.text(text)
    assert "".join(piece.text for piece in writer.pieces) == written


@given(hostile)
def test_a_text_without_the_marks_of_spans_holds_none(text: str) -> None:
    sure = Rules(own=("(?!)",))  # with patterns of its own every pattern is tried
    assert Rules().spans(text) == sure.spans(text)


@st.composite
def marked(draw: st.DrawFn, depth: int = 0) -> str:
    """Words, codes, and elements that begin with a word, with or without blanks between."""
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        inner = draw(marked(depth + 1)) if depth < 2 else "a"
        items = ["dog", "cat", "so,", '<img src="x">', "<code>a b</code>", f"<b>we {inner}</b>"]
        parts.append(draw(st.sampled_from(items)))
    return draw(st.sampled_from([" ", " ", " ", ""])).join(parts)


@settings(max_examples=120, deadline=None)
@given(marked())
def test_no_blank_comes_or_goes_around_codes(html: str) -> None:
    passage = html_passage(html)
    assert joined(passage, passage.sentences, diagonal) == html


@pytest.mark.parametrize("links", [diagonal, unlinked])
@pytest.mark.parametrize(
    ("html", "answer", "result"),
    [
        ("A word<sup>1</sup> here.", "Un mot1 ici.", "Un mot<sup>1</sup> ici."),
        ("A word<sup>1</sup> here.", "Un mot ici.", "Un mot<sup>1</sup> ici."),
        ("20 m<sup>2</sup> of floor.", "20 m2 de sol.", "20 m<sup>2</sup> de sol."),
        ("H<sub>2</sub>O and CO<sub>2</sub>", "H2O et CO2", "H<sub>2</sub>O et CO<sub>2</sub>"),
        ("the 5<sup>th</sup> dog", "le 5e chien", "le 5<sup>e</sup> chien"),
        ("x<sup>2</sup>+y<sup>2</sup> is", "x2+y2 est", "x<sup>2</sup>+y<sup>2</sup> est"),
        ("10<sup>-3</sup> m dogs", "10-3 m chiens", "10<sup>-3</sup> m chiens"),
    ],
)
def test_elements_inside_words(html: str, answer: str, result: str, links: Aligner) -> None:
    passage = html_passage(html)
    assert joined(passage, [answer], links) == result and not passage.stayed


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["sup", "sub", "b"]),
    st.sampled_from(["dog", "m", "5", "a b"]),
    st.sampled_from(["2", "th", "x"]),
    st.text("dog m2th5x.,é", max_size=15),
    st.sampled_from(ALIGNERS),
)
def test_elements_inside_words_stay_for_any_answer(name, before, inner, answer, align) -> None:
    html = f"The {before}<{name}>{inner}</{name}> runs."
    passage = html_passage(html)
    output = joined(passage, [answer], align)
    assert elements(output) == elements(html)
    assert Rules().count(nodes(output)) == Rules().count(nodes(html))
    stayed = output == html and answer != passage.sentences[0]
    assert passage.stayed == [0] * stayed, "sentences that stay are counted"


@pytest.mark.parametrize("code", ["<i>", "{\\an8}", "<font color=red>"])
@pytest.mark.parametrize("align", ALIGNERS)
def test_codes_in_plain_texts_stand_right_before_their_word(code: str, align: Aligner) -> None:
    passage = text_passage(f"{code}The dog sleeps.")
    assert joined(passage, ["Le chien dort."], align) == f"{code}Le chien dort."
    passage = text_passage(f"The {code}dog sleeps.")
    assert joined(passage, ["Le chien dort."], diagonal) == f"Le {code}chien dort."


@pytest.mark.parametrize("text", ["café", "%d dogs", "4 dogs", "<b>Dogs</b> run."])
@pytest.mark.parametrize("answer", ["", ".", "4", "%d", "…"])
def test_a_sentence_whose_answer_has_no_words_stays_and_is_counted(text: str, answer: str) -> None:
    passage = html_passage(text) if "<" in text else text_passage(text)
    assert joined(passage, [answer], diagonal) == text and passage.stayed == [0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        *((f"{mark}A dog", "A dog") for mark in ("- ", "-", "– ", "—", "• ", "* ")),
        *(("♪ A dog ♪", "A dog"), ("-é dog", "é dog")),
        *(("A - dog", "A - dog"), ("*A* dog", "*A* dog")),
    ],
)
def test_marks_of_items_and_speakers_stay(text: str, sentence: str) -> None:
    passage = text_passage(text)
    assert passage.sentences == [sentence]
    assert joined(passage, ["un chien"], diagonal) == text.replace(sentence, "un chien")
    assert text_passage("-5 dogs").sentences == ["-5 dogs"], "a minus"
    html = html_passage(f"<li>{text}</li>")
    assert joined(html, ["un chien"], diagonal) == f"<li>{text}</li>".replace(sentence, "un chien")
