"""The command `holdfast`. `--version` imports nothing else."""

import sys


def main() -> int:
    if sys.argv[1:] == ["--version"]:
        from holdfast import __version__

        print(f"holdfast {__version__}")
        return 0
    from holdfast.cli import garbage_collection

    garbage_collection.postpone()
    from holdfast.cli.main import main as run

    status = run(sys.argv[1:], owns_process=True)
    garbage_collection.skip_last()
    return status


if __name__ == "__main__":
    sys.exit(main())
