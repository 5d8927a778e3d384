"""Who may use a program beside JupyterLab (``session_apps.py``): checks its requests, and passes on its answers.

Python 3.6 must be able to read this file.
"""

import asyncio
import contextlib
import hmac
import html
import re
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

SECRET = "nl-token"  # noqa: S105 - in an address, once: it becomes a cookie
CHUNK = 64 * 1024
AGREES_WITHIN = 30  # seconds, to a WebSocket
NOT_TEXT = re.compile("[\x00-\x08\x0a-\x1f\x7f]")  # in a request's first lines
LENGTH = re.compile(r"[0-9]{1,15}\Z")
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")  # RFC 9110: the name of a header


def authorize(head, secret, port):
    """Decide about the head of a request: return an answer, or the head to pass on to the app.

    Only the host name ``port-N.localhost`` is accepted, because a browser sends the cookies of ``localhost`` and
    127.0.0.1 to every port there. Pages of other sites and of other ports are refused (``Origin``).
    """
    text = head[:-4].decode("latin-1")
    first, *lines = text.split("\r\n")
    words = first.split(" ")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    values = dict(reversed(headers))
    if len(words) != 3 or NOT_TEXT.search(text.replace("\r\n", "")) or not are_clear(headers):
        return response("400 Bad Request", "This request is not understood."), None
    method, target, version = words
    host, origin = values.get("host", ""), values.get("origin")
    if not is_own_name(host):
        text = "Open the address that launch-notebook prints, which begins with http://port-"
        return response("403 Forbidden", text), None
    if not is_own_page(host, origin, values):
        return response("403 Forbidden", "Pages at other addresses may not use this one."), None
    if "transfer-encoding" in values:  # browsers always send the length of a body
        return response("411 Length Required", "Send this with its length (Content-Length)."), None
    name, _, query = target.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    if SECRET in dict(given):
        if method != "GET" or not name.startswith("/") or name.startswith(("//", "/\\")):
            return response("400 Bad Request", "The secret is accepted only in an address that a browser opens."), None
        if not is_same(dict(given)[SECRET], secret):
            return wrong_secret(), None
        given = [(key, value) for key, value in given if key != SECRET]
        return with_cookie(name + ("?" + urlencode(given) if given else ""), secret, port), None
    if not is_same(cookie_of(values.get("cookie", ""), port), secret):
        return wrong_secret(), None
    return None, "\r\n".join([" ".join((method, target, version)), *passed_headers(headers, port)]).encode(
        "latin-1"
    ) + (b"\r\n\r\n")


def are_clear(headers):
    """Whether the headers are unambiguous about the request's end, its host and its origin."""
    names = [name for name, _ in headers]
    once = ("host", "origin", "cookie", "upgrade", "content-length")
    length = dict(headers).get("content-length", "0")
    return all(map(TOKEN.match, names)) and all(names.count(name) < 2 for name in once) and bool(LENGTH.match(length))


def is_own_page(host, origin, values):
    """Whether a request comes from the app's own page, or from opening an address.

    For a browser, a page at another port of the same name is the same site, so that its requests carry cookies; they
    have an ``Origin`` only if the page may read the answer.
    """
    try:
        if origin is not None and urlsplit(origin).netloc != host:
            return False
    except ValueError:
        return False
    is_foreign = values.get("sec-fetch-site", "") in ("same-site", "cross-site")
    return not is_foreign or (values.get("sec-fetch-mode"), values.get("sec-fetch-dest")) == ("navigate", "document")


def is_own_name(host):
    """Whether a host is a name below ``localhost``."""
    try:
        return (urlsplit("//" + host).hostname or "").endswith(".localhost")
    except ValueError:
        return False


def is_same(given, secret):
    """Compare in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def cookie_name(port):
    """Return the name of an app's cookie."""
    return f"nl-app-{port}"


def cookie_of(header, port):
    """Return the secret in a Cookie header, if any."""
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie_name(port):
            return value
    return ""


def passed_headers(headers, port):
    """Return the headers for the app: without our cookie, and for a single request, so that each one is checked."""
    is_upgrade = ("upgrade", "websocket") in [(name, value.lower()) for name, value in headers]
    lines = []
    for name, value in headers:
        if name == "cookie":
            parts = [part.strip() for part in value.split(";")]
            value = "; ".join(part for part in parts if part.partition("=")[0] != cookie_name(port))
            if not value:
                continue
        if name in ("connection", "keep-alive", "proxy-connection", "upgrade") and not is_upgrade:
            continue
        lines.append(f"{name}: {value}")
    return lines if is_upgrade else [*lines, "connection: close"]


def wrong_secret():
    """Return the answer to a request without a secret, or with an old one."""
    text = "Open it again with the address that launch-notebook prints, or with its card in JupyterLab's Launcher."
    return response("403 Forbidden", text)


def with_cookie(target, secret, port):
    """Return the redirect that turns the secret in an address into a cookie."""
    cookie = SimpleCookie()
    with contextlib.suppress(CookieError):
        cookie[cookie_name(port)] = secret
    kept = cookie.output(header="Set-Cookie:").strip() + "; Path=/; HttpOnly; SameSite=Lax\r\n"
    return response("303 See Other", "", f"Location: {target}\r\n{kept}")


def response(status, text, more=""):
    """Return a complete response with a text."""
    body = f'<!doctype html><meta charset="utf-8"><p style="white-space: pre-line">{html.escape(text)}</p>\n'.encode()
    head = (
        "HTTP/1.1 {}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n{}\r\n"
    )
    return head.format(status, len(body), more).encode() + body


# ---------------------------------------------------------------------------------------------------------- the answers


def body_length(head):
    """Return the number of bytes that follow a request's head; ``None`` if it asks for a WebSocket."""
    lines = head.split(b"\r\n")
    if b"connection: close" not in lines:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(b"content-length: ")), 0)


async def sent(reader, writer, length, upgraded):
    """Copy the body of a request to the app; discard what follows, until the browser closes the connection.

    For a WebSocket, copy everything once the app has accepted it.
    """
    if length is None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(upgraded.wait(), AGREES_WITHIN)
    if length is not None or upgraded.is_set():
        await carry(reader, writer, length)
    await carry(reader, None)


async def answered(reader, writer, upgraded):
    """Copy an answer to the browser, and signal if it turns the connection into a WebSocket.

    The connection ends with the answer, whatever the app says, so that every request is checked.
    """
    try:
        head = b"HTTP/1.1 100 "
        while is_interim(head):
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(head if is_interim(head) else closing(head))
        if is_upgraded(head):
            upgraded.set()
    except asyncio.IncompleteReadError as rest:
        writer.write(rest.partial)
    except (OSError, asyncio.LimitOverrunError):  # the browser needs no report of that
        return
    await carry(reader, writer)


def is_interim(head):
    """Whether this is an interim answer (1xx) that is followed by another; the switch to a WebSocket is not."""
    return head[8:10] == b" 1" and not is_upgraded(head)


def is_upgraded(head):
    """Whether the answer switches the connection to another protocol."""
    return head[8:12] == b" 101"


def closing(head):
    """Return the head of an answer, changed to close the connection unless it switches to a WebSocket."""
    if is_upgraded(head):
        return head
    lines = [line for line in head[:-4].split(b"\r\n") if not line.lower().startswith((b"connection:", b"keep-alive:"))]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])


async def carry(reader, writer, most=None):
    """Copy a stream to its end, or at most ``most`` bytes of it; without a ``writer``, discard it."""
    with contextlib.suppress(OSError):
        while most is None or most > 0:
            data = await reader.read(CHUNK if most is None else min(CHUNK, most))
            if not data:
                break
            most = None if most is None else most - len(data)
            if writer is not None:
                writer.write(data)
                await writer.drain()
