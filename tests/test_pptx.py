"""PPTX documents of python-pptx: texts are translated, formatting and everything else stays."""

import io

from pptx import Presentation
from pptx.dml.color import RGBColor
from pptx.util import Inches

from document_tools import answered, opened, saved


def slides() -> bytes:
    """Two slides: a title, formatted words, a break, a table, notes."""
    deck = Presentation()
    first = deck.slides.add_slide(deck.slide_layouts[1])
    first.shapes.title.text = "A short title"
    paragraph = first.placeholders[1].text_frame.paragraphs[0]
    for text, bold in (("The ", None), ("black", True), (" dog runs.", None)):
        run = paragraph.add_run()
        run.text, run.font.bold = text, bold
    paragraph.runs[1].font.color.rgb = RGBColor(255, 0, 0)
    second = first.placeholders[1].text_frame.add_paragraph()
    second.text = "One line\vAnother line"
    first.notes_slide.notes_text_frame.text = "Say hello."
    last = deck.slides.add_slide(deck.slide_layouts[6])
    table = last.shapes.add_table(1, 2, Inches(1), Inches(1), Inches(4), Inches(1)).table
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right & wrong"
    return saved(deck)


def shouted(data: bytes) -> tuple[list[str], object]:
    """The sentences, and the presentation in capitals."""
    document = opened("pptx", data)
    return document.sentences, Presentation(io.BytesIO(answered(document)))


def test_slides_tables_and_notes_are_translated() -> None:
    sentences, deck = shouted(slides())
    found = {"A short title", "The black dog runs.", "One line", "Another line", "Say hello."}
    assert {*sentences} == found | {"left", "right & wrong"} and len(sentences) == 7
    first, last = deck.slides
    assert first.shapes.title.text == "A SHORT TITLE"
    paragraph, broken = first.placeholders[1].text_frame.paragraphs
    assert [r.text for r in paragraph.runs] == ["THE ", "BLACK", " DOG RUNS."]
    assert [r.font.bold for r in paragraph.runs] == [None, True, None]
    assert paragraph.runs[1].font.color.rgb == RGBColor(255, 0, 0)
    assert broken.text == "ONE LINE\vANOTHER LINE"
    assert first.notes_slide.notes_text_frame.text == "SAY HELLO."
    table = next(shape.table for shape in last.shapes if shape.has_table)
    assert [cell.text for cell in table.rows[0].cells] == ["LEFT", "RIGHT & WRONG"]


def test_properties_of_the_end_stay_last_and_the_language_of_words_is_not_formatting() -> None:
    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    frame = slide.shapes.add_textbox(Inches(1), Inches(1), Inches(4), Inches(1)).text_frame
    paragraph = frame.paragraphs[0]
    for text, code in (("One ", "en-US"), ("dog", "en-GB")):
        run = paragraph.add_run()
        run.text = text
        run._r.get_or_add_rPr().set("lang", code)
    paragraph._p.get_or_add_endParaRPr()
    sentences, deck = shouted(saved(deck))
    assert sentences == ["One dog"]
    written = deck.slides[0].shapes[0].text_frame.paragraphs[0]._p
    assert [child.tag.rpartition("}")[2] for child in written] == ["r", "endParaRPr"]
