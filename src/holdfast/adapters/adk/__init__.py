"""The session service of Google ADK: `Runner(session_service=HoldfastSessionService(), ...)`."""

from holdfast.adapters.adk.service import HoldfastSessionService

__all__ = ["HoldfastSessionService"]
