"""The document that a client script prints: what each step gave, with everything volatile made equal.

A client is called as `client BASE_URL [AGENT_URL]`. BASE_URL is where it sends everything; AGENT_URL is where the
agent really listens, when that is somewhere else, so that both can be written as one.
"""
import json
import re
import sys

BASE = sys.argv[1].rstrip("/")
AGENT = (sys.argv[2] if len(sys.argv) > 2 else BASE).rstrip("/")
IDENTIFIER = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?")
steps = []


async def step(name, call):
    """Runs `call` and notes its value or its error. A name that starts with `error` should fail. Returns the value."""
    try:
        value = await call()
        steps.append({"step": name, "ok": True, "value": value})
        return value
    except Exception as e:  # whatever the SDK raises is the result
        steps.append({"step": name, "ok": False, "error": type(e).__name__, "text": str(e),
                      "code": getattr(e, "code", None), "data": getattr(e, "data", None)})
        return None


def leads_here(url):
    """A client that follows the card must come back to BASE_URL, or the run would prove nothing."""
    if url.rstrip("/") != BASE:
        sys.exit(f"the card leads to {url}, not to {BASE}")


def plain(value):
    """What `json` cannot write by itself: the models of the 0.3 SDK, and whatever an error carries."""
    return value.model_dump(mode="json", by_alias=True, exclude_none=True) if hasattr(value, "model_dump") else repr(value)


def print_report():
    text = json.dumps(steps, sort_keys=True, indent=1, ensure_ascii=False, default=plain)
    for url in sorted({BASE, AGENT}, key=len, reverse=True):
        text = re.sub(re.escape(url) + "/?", "<url>", text)
    names = {}
    text = IDENTIFIER.sub(lambda m: names.setdefault(m.group(), f"<id {len(names) + 1}>"), text)
    print(TIME.sub("<time>", text))
