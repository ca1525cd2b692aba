"""Virtual environments of the peers and of the profiler, installed by package name."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path("build/peers")
PACKAGES = {
    "hermes-agent": ("hermes-agent==0.19.0", "aiohttp"),
    "openai-agents": ("openai-agents==0.24.*",),
    "langgraph": ("langgraph==1.2.*", "langgraph-checkpoint-sqlite==3.1.*"),
    "py-spy": ("py-spy",),
    "google-adk": ("google-adk==2.13.*", "aiosqlite", "sqlalchemy"),
}


def installed(name: str, folder: Path = FOLDER) -> Path:
    """Return the Python of a peer's environment. Installs the peer at the first call."""
    environment = (folder / name).absolute()
    marker = environment / "installed"
    wanted = "\n".join(PACKAGES[name])
    if not marker.exists() or marker.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        install = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES[name]]
        subprocess.run(install, check=True)
        marker.write_text(wanted)
    return environment / "bin" / "python"


def version(name: str, folder: Path = FOLDER) -> str:
    """Return name and installed version of a peer."""
    code = f"from importlib.metadata import version; print(version({name!r}))"
    found = subprocess.run([installed(name, folder), "-c", code], check=True, capture_output=True, text=True)
    return f"{name} {found.stdout.strip()}"
