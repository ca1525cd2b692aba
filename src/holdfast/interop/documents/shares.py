"""The JSON documents of links to sessions."""

from typing import Literal, Self

from holdfast.interop.serialization import Document, format_time
from holdfast.interop.sharing import NewShare
from holdfast.model.times import iso
from holdfast.store.repos.shares import Share


class ShareItem(Document, frozen=True):
    id: str
    session_id: str
    state: Literal["active", "expired", "revoked"]
    upto_seq: int
    title: str
    created_at: str
    created_by: str
    expires_at: str
    revoked_at: str | None
    revoked_by: str | None

    @classmethod
    def from_share(cls, share: Share, *, at: int) -> Self:
        return cls(
            id=share.id,
            session_id=share.session_id,
            state=state(share, at),
            upto_seq=share.upto_seq,
            title=share.title,
            created_at=iso(share.created_at),
            created_by=share.created_by,
            expires_at=iso(share.expires_at),
            revoked_at=format_time(share.revoked_at),
            revoked_by=share.revoked_by,
        )


class NewShareResponse(Document, frozen=True):
    share: ShareItem
    path: str
    """The path of the link on this server."""
    url: str
    warning: str

    @classmethod
    def from_new(cls, new: NewShare, base: str, warning: str) -> Self:
        item = ShareItem.from_share(new.share, at=new.share.created_at)
        return cls(share=item, path=new.path, url=f"{base}{new.path}", warning=warning)


class ShareListResponse(Document, frozen=True):
    shares: list[ShareItem]


def state(share: Share, at: int) -> Literal["active", "expired", "revoked"]:
    """Whether the link works."""
    if share.revoked_at is not None:
        return "revoked"
    return "expired" if share.expires_at <= at else "active"
