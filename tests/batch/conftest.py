from tests.cli.conftest import holdfast, home, scripted  # noqa: F401 - the command line, for these tests too
