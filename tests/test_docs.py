"""Every command, setting and error is documented, and nothing is documented that does not exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.broker.admin import UserStatus
from holdfast.cli.errors import EXIT
from holdfast.cli.main import cli
from holdfast.config import ENVIRONMENT, KNOWN_VARIABLES, SECRET_FILES
from holdfast.settings import list_setting_names

DOCS = Path(__file__).parent.parent / "docs"
EVERYWHERE = {"--home", "--help", "--version"}


def commands(group: click.Group = cli, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that lead to it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{name} is listed"
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield (*words, name), command


def options(command: click.Command) -> set[str]:
    return {
        name
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    }


def sections(text: str) -> dict[str, str]:
    """The text below each heading of a command."""
    _, *parts = re.split(r"^### holdfast (.+)\n", text, flags=re.MULTILINE)
    return {
        name: re.split(r"^##? ", body, flags=re.MULTILINE)[0]
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


def rows(text: str) -> list[list[str]]:
    """The cells of every row of every table."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_every_command_is_documented_and_every_documented_command_exists() -> None:
    documented = sections((DOCS / "commands.md").read_text())

    assert documented.keys() == {" ".join(words) for words, _ in commands()}


def test_every_option_is_documented_with_its_command_and_no_other() -> None:
    documented = sections((DOCS / "commands.md").read_text())

    for words, command in commands():
        named = set(re.findall(r"--[a-z][a-z-]*", documented[" ".join(words)]))
        assert named == options(command), " ".join(words)


def test_the_options_of_every_command_are_documented() -> None:
    text = (DOCS / "commands.md").read_text().partition("## Chat, run and serve")[0]

    assert options(cli) | {"--help"} == EVERYWHERE
    assert set(re.findall(r"--[a-z]+", text)) - {"--json"} == EVERYWHERE


def test_every_setting_is_documented_and_every_documented_setting_exists() -> None:
    named = [cells[0].strip("`") for cells in rows((DOCS / "settings.md").read_text()) if cells[0].startswith("`")]
    variables = [name for name in named if name.isupper()]
    settings = [name for name in named if not name.isupper()]

    assert sorted(settings) == sorted(list_setting_names())
    assert sorted(variables) == sorted({*KNOWN_VARIABLES, *ENVIRONMENT, *SECRET_FILES})


def test_each_variable_is_documented_with_what_it_sets() -> None:
    documented = {cells[0].strip("`"): cells[1].strip("`") for cells in rows((DOCS / "settings.md").read_text())}

    for variable, path in ENVIRONMENT.items():
        assert documented[variable] == path


def test_the_example_file_is_valid() -> None:
    import tomllib

    import msgspec

    from holdfast.settings import Settings

    example = re.findall(r"```toml\n(.*?)```", (DOCS / "settings.md").read_text(), flags=re.DOTALL)[0]
    given = {"home": Path("/"), "store": "sqlite:///x"} | tomllib.loads(example)
    assert msgspec.convert(given, Settings, dec_hook=lambda kind, value: value)


def test_every_error_code_is_documented_with_its_exit_status() -> None:
    documented = {
        cells[0].strip("`"): int(cells[1])
        for cells in rows((DOCS / "errors.md").read_text())
        if cells[0].startswith("`")
    }

    assert documented == EXIT


def anchors(page: Path) -> set[str]:
    """What a link to a heading of this page may name, by the rule of repository hosts."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_to_a_file_and_a_heading_that_exist() -> None:
    for page in [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]:
        text = page.read_text("utf-8")
        for link in [*re.findall(r"\]\(([^):]+)\)", text), *re.findall(r'src="([^":]+)"', text)]:
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            assert target.exists(), f"{page.name} links to {name}"
            assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"


def test_the_readme_leads_to_every_page() -> None:
    readme = (DOCS.parent / "README.md").read_text()

    assert [page.name for page in DOCS.glob("*.md") if f"(docs/{page.name})" not in readme] == []


def test_the_navigation_of_the_site_names_every_page_once() -> None:
    site = (DOCS.parent / "mkdocs.yml").read_text("utf-8")
    named = re.findall(r": (\S+\.md)$", site.partition("\nnav:\n")[2], flags=re.MULTILINE)
    outside = {"index.md", "AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "decisions/README.md"}

    assert sorted(named) == sorted({page.name for page in DOCS.glob("*.md")} | outside)


def test_the_list_of_decisions_leads_to_each_of_them() -> None:
    folder = DOCS / "decisions"
    listed = (folder / "README.md").read_text()

    assert [page.name for page in folder.glob("0*.md") if f"({page.name})" not in listed] == []


def test_every_field_of_the_users_of_a_broker_is_documented() -> None:
    told = sections((DOCS / "commands.md").read_text("utf-8"))["broker status"]
    listed = told.partition('"users": [{')[2].partition("}]")[0]

    assert re.findall(r'"(\w+)"', listed) == list(UserStatus.__struct_fields__)


def test_the_glossary_is_short_and_every_term_is_used() -> None:
    """A new reader can read it in two minutes, and each term occurs in the code or in another document."""
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", (DOCS / "words.md").read_text("utf-8"), flags=re.MULTILINE)
    pages = [page for page in DOCS.rglob("*.md") if page.name != "words.md"]
    sources = [path for path in (DOCS.parent / "src").rglob("*") if path.suffix in {".py", ".sql", ".md", ".html"}]
    text = re.sub(r"[\s_]+", " ", " ".join(path.read_text("utf-8") for path in (*pages, *sources)).lower())

    assert 0 < len(terms) <= 25
    assert [term for term in terms if not re.search(rf"\b{re.escape(term)}", text)] == []
