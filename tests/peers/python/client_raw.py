"""Plain HTTP, no SDK: spellings, paths and identifiers that clients really send. Usage: see report.py.

Bodies are compared as text, so that a relay that writes JSON anew is found out.
"""
import asyncio
import uuid

import httpx

from report import BASE, print_report, step

V03 = {"send": "message/send", "stream": "message/stream", "get": "tasks/get", "list": None, "cancel": "tasks/cancel",
       "subscribe": "tasks/resubscribe", "extended card": "agent/getAuthenticatedExtendedCard",
       "push set": "tasks/pushNotificationConfig/set", "push get": "tasks/pushNotificationConfig/get",
       "push list": "tasks/pushNotificationConfig/list", "push delete": "tasks/pushNotificationConfig/delete"}
V10 = {"send": "SendMessage", "stream": "SendStreamingMessage", "get": "GetTask", "list": "ListTasks", "cancel": "CancelTask",
       "subscribe": "SubscribeToTask", "extended card": "GetExtendedAgentCard",
       "push set": "CreateTaskPushNotificationConfig", "push get": "GetTaskPushNotificationConfig",
       "push list": "ListTaskPushNotificationConfigs", "push delete": "DeleteTaskPushNotificationConfig"}


def body(method, params, id='1'):
    return f'{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}'


async def answer(http, text, path="/", headers=None):
    """Status, media type and body; an SSE body without comments, which a relay may add."""
    reply = await http.post(BASE + path, content=text.encode(), headers=[("content-type", "application/json"), *(headers.items() if isinstance(headers, dict) else headers or [])])
    kind = reply.headers.get("content-type", "").split(";")[0]
    lines = [l for l in reply.text.replace("\r\n", "\n").split("\n") if not l.startswith(":")] if "event-stream" in kind else reply.text
    if isinstance(lines, list):
        lines = [l for l in lines if l.startswith("data:")]
    return {"status": reply.status_code, "type": kind, "body": lines, "json": _json(reply) if isinstance(lines, str) else None}


def _json(reply):
    try:
        return reply.json()
    except ValueError:
        return None


async def version(http, name, methods, headers, v03):
    def message(text):
        role, part = ("user", f'{{"kind":"text","text":"{text}"}}') if v03 else ("ROLE_USER", f'{{"text":"{text}"}}')
        return f'{{"message":{{"messageId":"{uuid.uuid4()}","role":"{role}","parts":[{part}]}}}}'

    def do(what, text, **more):
        return step(f"{name}: {what}", lambda: answer(http, text, headers=headers, **more))

    sent = await do("send", body(methods["send"], message("echo hello")))
    result = ((sent or {}).get("json") or {}).get("result") or {}
    task = result.get("id") or result.get("task", {}).get("id") or "none"
    context = result.get("contextId") or result.get("task", {}).get("contextId") or "none"
    for what, id in {"integer": "12345678901234567", "negative": "-5", "string": '"a\\u0062c/\\"x\\""', "empty string": '""',
                     "long string": '"' + "x" * 10240 + '"'}.items():
        await do(f"send, id {what}", body(methods["send"], message("message hello"), id))
    await do("send without trailing slash", body(methods["send"], message("message hello")), path="")
    await do("send, white space around", "\r\n \t" + body(methods["send"], message("message hello")) + " \n")
    await do("send, snake case", body(methods["send"], message("message hello").replace("messageId", "message_id")))
    await do("stream", body(methods["stream"], message("chunks hello"), '"s"'))
    await do("stream, agent fails", body(methods["stream"], message("fail hello")))
    await do("send, agent fails", body(methods["send"], message("fail hello")))
    await do("get", body(methods["get"], f'{{"id":"{task}"}}'))
    await do("get, unknown", body(methods["get"], '{"id":"nope"}'))
    await do("get, wrong params", body(methods["get"], '[1]'))
    if methods["list"]:
        await do("list", body(methods["list"], f'{{"contextId":"{context}"}}'))
    await do("cancel, ended", body(methods["cancel"], f'{{"id":"{task}"}}'))
    await do("subscribe, unknown", body(methods["subscribe"], '{"id":"nope"}'))
    if v03:
        hook = f'{{"taskId":"{task}","pushNotificationConfig":{{"id":"hook","url":"https://hooks.example.com/"}}}}'
        one = f'{{"id":"{task}","pushNotificationConfigId":"hook"}}'
        every = f'{{"id":"{task}"}}'
    else:
        hook = f'{{"taskId":"{task}","id":"hook","url":"https://hooks.example.com/"}}'
        one = f'{{"taskId":"{task}","id":"hook"}}'
        every = f'{{"taskId":"{task}"}}'
    await do("push set", body(methods["push set"], hook))
    await do("push get", body(methods["push get"], one))
    await do("push list", body(methods["push list"], every))
    await do("push delete", body(methods["push delete"], one))
    await do("push get, deleted", body(methods["push get"], one))
    card = await do("extended card", body(methods["extended card"], "{}"))
    if card:  # a relay may carry the card as a document and write the Response around it anew
        del card["body"]
    await do("unknown method", body("no/such/method", "{}"))


async def main():
    async with httpx.AsyncClient(timeout=30) as http:
        await version(http, "v0.3", V03, {}, True)
        await version(http, "v1.0", V10, {"A2A-Version": "1.0"}, False)
        get = body("GetTask", '{"id":"nope"}')
        await step("version unknown", lambda: answer(http, get, headers={"A2A-Version": "99.0"}))
        await step("version missing", lambda: answer(http, get))
        await step("extensions on two lines", lambda: answer(http, get, headers=[
            ("A2A-Version", "1.0"), ("A2A-Extensions", "https://example.com/extensions/one"), ("A2A-Extensions", "https://example.com/b")]))

        async def card():
            reply = await http.get(BASE + "/.well-known/agent-card.json")
            return {"status": reply.status_code, "type": reply.headers["content-type"].split(";")[0], "json": reply.json()}
        await step("card", card)
    print_report()


asyncio.run(main())
