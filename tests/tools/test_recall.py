"""The model reads its own log."""

from pathlib import Path

from holdfast.model.message import text_of
from holdfast.model.tool import ToolContext
from holdfast.providers.scripted import ScriptStep
from holdfast.tools.recall import RecallTool
from tests.engine.stage import Stage, set_up


async def spoken(folder: Path, *texts: str) -> tuple[Stage, ToolContext]:
    stage = await set_up(folder, *(ScriptStep(say=f"Noted {n}.") for n in range(len(texts))))
    session = await stage.session()
    for text in texts:
        await stage.play(session.id, text)
    return stage, ToolContext(session_id=session.id, turn_id="t", call_id="c", workdir=folder, files=folder)


async def recall(stage: Stage, scene: ToolContext, **arguments: object) -> str:
    return text_of((await RecallTool(stage.database).run(arguments, scene)).parts)


async def test_text_is_found_in_any_case_and_script_with_its_number(tmp_path: Path) -> None:
    stage, scene = await spoken(tmp_path, "The key is under the MAT", "我喜欢喝茶", "nothing here")

    assert "under the MAT" in await recall(stage, scene, query="mat KEY")
    assert "喝茶" in await recall(stage, scene, query="喝茶")
    assert "No message of this session" in await recall(stage, scene, query="giraffe")
    await stage.engine.close()
    await stage.database.close()


async def test_a_range_is_read_verbatim_and_a_long_one_says_where_to_continue(tmp_path: Path) -> None:
    stage, scene = await spoken(tmp_path, "x" * 30_000, "short")

    first = await recall(stage, scene, from_seq=1)

    assert "more characters: continue with from_seq=3, to_seq=9 and offset=20000" in first
    assert "user: short" in await recall(stage, scene, from_seq=4)
    assert "user: short" in await recall(stage, scene, from_seq=3, offset=20_000)
    assert "events 1 to" in await recall(stage, scene, from_seq=900)
    await stage.engine.close()
    await stage.database.close()


async def test_a_long_message_is_read_to_its_end_page_by_page(tmp_path: Path) -> None:
    stage, scene = await spoken(tmp_path, "begin " + "blah " * 2_000 + "end-of-it")
    tool = RecallTool(stage.database, 3_000)

    offset, pages = 0, []
    while True:
        page = text_of((await tool.run({"from_seq": 3, "to_seq": 3, "offset": offset}, scene)).parts)
        pages.append(page.partition("\n[")[0])
        if "continue with" not in page:
            break
        offset = int(page.rpartition("offset=")[2].rstrip("]"))
    await stage.engine.close()
    await stage.database.close()

    assert len(pages) == 4
    assert "".join(pages).endswith("begin " + "blah " * 2_000 + "end-of-it")
