"""The official Python client, a2a-sdk 0.3.x, doing everything it can. Usage: see report.py."""
import asyncio
import uuid

import httpx

from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.types import (GetTaskPushNotificationConfigParams, Message, MessageSendConfiguration, MessageSendParams, Part,
                       PushNotificationAuthenticationInfo, PushNotificationConfig, Role, TaskIdParams,
                       TaskPushNotificationConfig, TaskQueryParams, TextPart)
from report import BASE, leads_here, print_report, step

EXTENSION = "https://example.com/extensions/one"


def message(text, **more):
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=[Part(root=TextPart(text=text))], **more)


def plain(value):
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return value.model_dump(mode="json", by_alias=True, exclude_none=True) if hasattr(value, "model_dump") else value


async def every(stream):
    return [plain(e) async for e in stream]


async def one(call):
    return plain(await call)


def task_id(events):
    return events[0][0]["id"] if events else "none"


async def until_working(client, task):
    for _ in range(100):
        if (await one(client.get_task(TaskQueryParams(id=task))))["status"]["state"] != "submitted":
            return
        await asyncio.sleep(0.05)


async def operations(prefix, unary, streaming):
    async def do(name, call):
        return await step(("error " if name.startswith("error") else "") + f"{prefix}: {name.removeprefix('error ')}", call)

    immediately = MessageSendConfiguration(blocking=False)
    sent = await do("send", lambda: every(unary.send_message(message("echo hello \u2028 \"x\" \u00e9\U0001f600"))))
    done = task_id(sent)
    await do("send, answered by a message", lambda: every(unary.send_message(message("message hi"))))
    await do("send, rejected", lambda: every(unary.send_message(message("reject hi"))))
    asked = await do("send, input required", lambda: every(unary.send_message(message("input hi"))))
    if asked:
        await do("send, input given", lambda: every(unary.send_message(
            message("echo more", task_id=task_id(asked), context_id=asked[0][0]["contextId"]))))
    await do("stream", lambda: every(streaming.send_message(message("chunks hello"))))
    await do("stream, answered by a message", lambda: every(streaming.send_message(message("message hi"))))
    await do("stream, many events", lambda: every(streaming.send_message(message("many hello"))))
    await do("get", lambda: one(unary.get_task(TaskQueryParams(id=done))))
    await do("get without history", lambda: one(unary.get_task(TaskQueryParams(id=done, history_length=0))))

    async def cancel_under_stream():
        events, cancelled = [], None
        async for event in streaming.send_message(message("wait hello")):
            events.append(plain(event))
            if len(events) == 2:
                cancelled = await one(unary.cancel_task(TaskIdParams(id=task_id(events))))
        return {"events": events, "cancelled": cancelled}
    await do("cancel under a stream", cancel_under_stream)

    async def cancel():
        waiting = await every(unary.send_message(message("wait hello"), configuration=immediately))
        await until_working(unary, task_id(waiting))
        return await one(unary.cancel_task(TaskIdParams(id=task_id(waiting))))
    await do("cancel", cancel)

    async def resubscribe():
        slow = await every(unary.send_message(message("slow hello"), configuration=immediately))
        await until_working(unary, task_id(slow))
        # The reader of this SDK wants to have seen the task first, which v0.3 does not promise; the transport does not mind.
        return [plain(e) async for e in streaming._transport.resubscribe(TaskIdParams(id=task_id(slow)))]
    await do("resubscribe", resubscribe)

    async def leave():
        stream = streaming.send_message(message("slow hello"))
        first = plain(await anext(stream))
        await stream.aclose()
        for _ in range(100):
            last = await one(unary.get_task(TaskQueryParams(id=first[0]["id"])))
            if last["status"]["state"] == "completed":
                return [first, last]
            await asyncio.sleep(0.1)
        return "the task did not go on"
    await do("stream left after one event", leave)

    hook = PushNotificationConfig(id="hook", url="https://hooks.example.com/a?b=c%20d", token="t\u00f6ken",
                                  authentication=PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="s3cret"))
    await do("push set", lambda: one(unary.set_task_callback(TaskPushNotificationConfig(task_id=done, push_notification_config=hook))))
    await do("push get", lambda: one(unary.get_task_callback(GetTaskPushNotificationConfigParams(id=done, push_notification_config_id="hook"))))
    await do("get with extensions", lambda: one(unary.get_task(TaskQueryParams(id=done), extensions=[EXTENSION, "https://example.com/extensions/two"])))
    await do("error get, unknown task", lambda: one(unary.get_task(TaskQueryParams(id="nope"))))
    await do("error cancel, ended task", lambda: one(unary.cancel_task(TaskIdParams(id=done))))
    await do("error cancel, unknown task", lambda: one(unary.cancel_task(TaskIdParams(id="nope"))))
    await do("error push get, unknown task", lambda: one(unary.get_task_callback(GetTaskPushNotificationConfigParams(id="nope"))))
    await do("error send, agent fails", lambda: every(unary.send_message(message("fail hello"))))
    await do("error stream, agent fails", lambda: every(streaming.send_message(message("fail hello"))))
    await do("error send, unknown task", lambda: every(unary.send_message(message("echo hello", task_id="nope"))))
    await do("error stream, unknown task", lambda: every(streaming.send_message(message("echo hello", task_id="nope"))))
    await do("error resubscribe, unknown task", lambda: every(streaming.resubscribe(TaskIdParams(id="nope"))))
    await do("extended card", lambda: one(unary.get_card()))


async def main():
    async with httpx.AsyncClient(timeout=30) as http:
        card = await step("card", lambda: A2ACardResolver(http, BASE).get_agent_card())
        if card:
            leads_here(card.url)
            clients = [await ClientFactory.connect(BASE, client_config=ClientConfig(httpx_client=http, streaming=s))
                       for s in (False, True)]
            await operations("by card", *clients)
        # The transport alone, without a card: it fetches one only for the extended card.
        direct = JsonRpcTransport(http, url=BASE)
        send = lambda text: MessageSendParams(message=message(text))
        await step("transport: send", lambda: one(direct.send_message(send("echo direct"))))
        await step("transport: stream", lambda: every(direct.send_message_streaming(send("chunks direct"))))
        await step("transport: card and extended card", lambda: one(direct.get_card()))
        await step("error transport: get, unknown task", lambda: one(direct.get_task(TaskQueryParams(id="nope"))))
    print_report()


asyncio.run(main())
