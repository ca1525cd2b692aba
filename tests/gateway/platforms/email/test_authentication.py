"""Which Authentication-Results authenticate mail from x.test, and which do not."""

import email
import email.policy

import pytest

from holdfast.gateway.platforms.email.authentication import parse_results, rejection_reason
from holdfast.model.errors import Invalid

US = "mx.us.test"
GOOD = [
    "mx.us.test; dmarc=pass header.from=x.test",
    "MX.US.TEST; DMARC=PASS Header.From=X.TEST",
    "mx.us.test 1; dmarc=pass header.from=x.test",
    '"mx.us.test"; dmarc=pass header.from="x.test"',
    "mx.us.test;dmarc=pass header.from=x.test;",
    "mx.us.test (our server); dmarc (a (nested; comment)) = (so) pass (p=none sp=none) header.from=x.test",
    "mx.us.test; dmarc/1=pass header.from=x.test",
    "mx.us.test;\r\n\tspf=pass smtp.mailfrom=alice@x.test;\r\n\tdmarc=pass action=none header.from=x.test",
    "mx.us.test; spf=fail smtp.mailfrom=evil.test; dkim=pass header.d=x.test; dmarc=pass header.from=x.test",
    'mx.us.test; dmarc=pass reason="all \\"well\\"; dmarc=fail" header.from=x.test',
    "mx.us.test; dmarc=pass (dmarc=fail) header.from=x.test",
    "mx.us.test; dkim=pass header.d=x.test header.s=s1 header.b=abc/+def",
    "mx.us.test; dkim=pass header.i=@x.test",
    "mx.us.test; dkim=fail header.d=other.test; dkim=pass header.d=x.test",
    "mx.us.test; dmarc=none header.from=x.test; dkim=pass header.d=x.test",
    "mx.us.test; spf=pass smtp.mailfrom=alice@x.test",
    "mx.us.test; spf=pass smtp.mailfrom=x.test",
    "mx.us.test; spf=pass smtp.mailfrom=x.test; arc=none; compauth=pass reason=100",
    "mx.us.test; dmarc=pass header.from=x.test.",
    "mx.us.test; dmarc=pass polrec.p=reject header.from=x.test; x-tls=pass",
]
BAD = [
    "",
    "mx.us.test",
    "mx.us.test;",
    "mx.us.test; none",
    "mx.us.test; dmarc=fail header.from=x.test",
    "mx.us.test; dmarc=fail smtp.mailfrom=dmarc=pass@evil.test header.from=x.test",
    'mx.us.test; dmarc=fail smtp.mailfrom="dmarc=pass"@evil.test header.from=x.test',
    "mx.us.test; dmarc=fail header.from=x.test; spf=pass smtp.mailfrom=dmarc=pass@evil.test",
    "mx.us.test; spf=pass smtp.mailfrom=dmarc=pass@x.test",
    "mx.us.test; dmarc=fail (dmarc=pass) header.from=x.test",
    'mx.us.test; dmarc=fail reason="dmarc=pass" header.from=x.test',
    'mx.us.test; dmarc=fail reason="x\\"; dmarc=pass header.from=x.test',
    "mx.us.test; dmarc=fail header.from=x.test; dmarc=pass header.from=x.test",
    "mx.us.test; dmarc=pass header.from=x.test; dmarc=fail header.from=x.test",
    "mx.us.test; dmarc=fail header.from=x.test; dkim=pass header.d=x.test; spf=pass smtp.mailfrom=x.test",
    "mx.us.test; dmarc=temperror header.from=x.test; dkim=pass header.d=x.test",
    "mx.us.test; dmarc=permerror header.from=x.test",
    "mx.us.test; dmarc=bestguesspass header.from=x.test",
    "mx.us.test; dmarc=pass",
    "mx.us.test; dmarc=pass header.from=evil.test",
    "mx.us.test; dmarc=pass header.from=x.test.evil.test",
    "mx.us.test; dmarc=pass header.from=notx.test",
    "mx.us.test; dmarc=pass header.from=evil.test header.from=x.test",
    "mx.us.test; dmarc=passed header.from=x.test",
    "mx.us.test; xdmarc=pass header.from=x.test",
    "mx.us.test; dmarc.x=pass header.from=x.test",
    'mx.us.test; dmarc="pass" header.from=x.test',
    'mx.us.test; "dmarc"=pass header.from=x.test',
    "mx.us.test; dmarc pass header.from=x.test",
    "mx.us.test; dmarc==pass header.from=x.test",
    "mx.us.test; =pass header.from=x.test",
    "mx.us.test; dmarc=pass header.from=x.test (no end",
    'mx.us.test; dmarc=pass header.from="x.test',
    "mx.us.test; dmarc=pass ) header.from=x.test",
    "mx.evil.test; dmarc=pass header.from=x.test",
    "mx.us.test.evil.test; dmarc=pass header.from=x.test",
    "evil mx.us.test; dmarc=pass header.from=x.test",
    "mx.us.test evil; dmarc=pass header.from=x.test",
    "(mx.us.test) evil.test; dmarc=pass header.from=x.test",
    "; dmarc=pass header.from=x.test",
    "dmarc=pass header.from=x.test",
    "mx.us.test, dmarc=pass header.from=x.test",
    "mx.us.test; dkim=pass header.d=evil.test",
    "mx.us.test; dkim=pass header.d=test",
    "mx.us.test; dkim=pass header.d=sub.x.test",
    "mx.us.test; dkim=pass header.i=x.test@evil.test",
    "mx.us.test; dkim=fail header.d=x.test",
    "mx.us.test; dkim=pass",
    "mx.us.test; spf=pass smtp.mailfrom=x.test@evil.test",
    "mx.us.test; spf=pass smtp.helo=x.test",
    "mx.us.test; spf=softfail smtp.mailfrom=x.test",
    "mx.us.test; auth=pass smtp.auth=alice@x.test",
    "mx.us.test; dmarc=fail header.from==?utf-8?q?x.test;_dmarc=3Dpass_header.from=3Dx.test?=",
    "=?utf-8?q?mx.us.test;_dmarc=3Dpass_header.from=3Dx.test?=",
    "mx.us.test; dmarc=pass header.from=x.test \\",
]


def mail(*results: str, sender: str = "Alice <alice@x.test>") -> email.message.EmailMessage:
    head = "".join(f"Authentication-Results: {one}\r\n" for one in results)
    text = f"{head}From: {sender}\r\nTo: agent@us.test\r\n\r\nHello\r\n"
    made = email.message_from_bytes(text.encode(), policy=email.policy.default)
    assert isinstance(made, email.message.EmailMessage)
    return made


@pytest.mark.parametrize("header", GOOD)
def test_a_header_that_authenticates_the_domain_in_from_is_accepted(header: str) -> None:
    assert rejection_reason(mail(header), "alice@x.test", US) == ""


@pytest.mark.parametrize("header", BAD)
def test_a_malformed_or_foreign_header_authenticates_nobody(header: str) -> None:
    assert rejection_reason(mail(header), "alice@x.test", US)


def test_only_the_topmost_header_counts() -> None:
    ours, forged = "mx.us.test; dmarc=fail header.from=x.test", "mx.us.test; dmarc=pass header.from=x.test"

    assert rejection_reason(mail(ours, forged), "alice@x.test", US)
    assert rejection_reason(mail("mx.us.test; none", forged), "alice@x.test", US)
    assert rejection_reason(mail("mx.other.test; spf=pass", forged), "alice@x.test", US)
    assert rejection_reason(mail(forged, ours), "alice@x.test", US) == ""
    assert rejection_reason(mail(), "alice@x.test", US)


def test_a_mail_with_two_senders_is_rejected() -> None:
    made = mail("mx.us.test; dmarc=pass header.from=x.test", sender="a@x.test\r\nFrom: b@evil.test")

    assert rejection_reason(made, "a@x.test", US) == "it has more than one From"


def test_a_parent_domain_may_sign_for_a_domain_below_it() -> None:
    assert rejection_reason(mail("mx.us.test; dkim=pass header.d=x.test"), "alice@mail.x.test", US) == ""


def test_a_report_is_parsed_into_methods_and_properties() -> None:
    report = parse_results(
        'mx.us.test 1; spf=pass (ok) smtp.mailfrom=a@x.test; dkim=fail reason="bad \\"sum\\"" header.d=x.test'
    )

    assert report.authserv == "mx.us.test"
    assert [(one.method, one.result) for one in report.results] == [("spf", "pass"), ("dkim", "fail")]
    assert report.results[1].properties == {"reason": 'bad "sum"', "header.d": "x.test"}
    with pytest.raises(Invalid):
        parse_results("mx; a=b=c")
