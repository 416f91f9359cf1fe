"""All kinds of drawings, used to read JSON again."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from foveate.look.draw.charts import BarsDrawing, LinesDrawing
from foveate.look.draw.film import FilmDrawing
from foveate.look.draw.interactive import InteractiveDrawing
from foveate.look.draw.lanes import LanesDrawing
from foveate.look.draw.maps import AttentionDrawing
from foveate.look.draw.page import PageGroup
from foveate.look.draw.pictures import PictureDrawing
from foveate.look.draw.scene import SceneDrawing
from foveate.look.draw.sheets import SheetDrawing
from foveate.look.draw.texts import TableDrawing, WordsDrawing

AnyDrawing = Annotated[
    AttentionDrawing | FilmDrawing | SheetDrawing | LinesDrawing | BarsDrawing
    | WordsDrawing | LanesDrawing | PictureDrawing | SceneDrawing | TableDrawing
    | InteractiveDrawing,
    Field(discriminator="kind"),
]  # fmt: skip


class StoredGroup(PageGroup):
    """A group in a previously written page, with its drawings by their kinds."""

    drawings: Sequence[AnyDrawing]


def groups_of(page: str) -> list[StoredGroup]:
    """Return the groups of a page. Raises ``ValueError`` for drawings of another version."""
    parts = page.split('<script class="group" type="application/json">')[1:]
    return [StoredGroup.model_validate_json(part.partition("</script>")[0]) for part in parts]
