"""The official Python client, a2a-sdk 1.x, doing everything it can. Usage: see report.py."""
import asyncio
import uuid

import httpx
from google.protobuf.json_format import MessageToDict

from a2a.client import A2ACardResolver, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.types import (AuthenticationInfo, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest,
                       GetExtendedAgentCardRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest,
                       ListTaskPushNotificationConfigsRequest, ListTasksRequest, Message, Part, Role,
                       SendMessageConfiguration, SendMessageRequest, SubscribeToTaskRequest, TaskPushNotificationConfig)
from report import BASE, leads_here, print_report, step

EXTENSION = "https://example.com/extensions/one"


def request(text, **more):
    now = more.pop("immediately", False)
    return SendMessageRequest(message=Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], **more),
                              configuration=SendMessageConfiguration(return_immediately=now))


async def every(stream):
    return [MessageToDict(e) async for e in stream]


async def one(call):
    value = await call
    return None if value is None else MessageToDict(value)


def task_id(events):
    return events[0]["task"]["id"] if events else "none"


async def until_working(client, task):
    """The state that a background task reaches is a race; wait for it, silently."""
    for _ in range(100):
        state = MessageToDict(await client.get_task(GetTaskRequest(id=task)))["status"]["state"]
        if state != "TASK_STATE_SUBMITTED":
            return
        await asyncio.sleep(0.05)


async def operations(http, prefix, unary, streaming):
    """Every operation, on clients that do not and do stream."""
    async def do(name, call):
        return await step(("error " if name.startswith("error") else "") + f"{prefix}: {name.removeprefix('error ')}", call)

    sent = await do("send", lambda: every(unary.send_message(request("echo hello \u2028 \"x\" \u00e9\U0001f600"))))
    done = task_id(sent)
    await do("send, answered by a message", lambda: every(unary.send_message(request("message hi"))))
    await do("send, rejected", lambda: every(unary.send_message(request("reject hi"))))
    asked = await do("send, input required", lambda: every(unary.send_message(request("input hi"))))
    if asked:
        await do("send, input given", lambda: every(unary.send_message(
            request("echo more", task_id=task_id(asked), context_id=asked[0]["task"]["contextId"]))))
    await do("stream", lambda: every(streaming.send_message(request("chunks hello"))))
    await do("stream, answered by a message", lambda: every(streaming.send_message(request("message hi"))))
    await do("stream, many events", lambda: every(streaming.send_message(request("many hello"))))
    await do("get", lambda: one(unary.get_task(GetTaskRequest(id=done))))
    await do("get without history", lambda: one(unary.get_task(GetTaskRequest(id=done, history_length=0))))
    if sent:
        await do("list", lambda: one(unary.list_tasks(ListTasksRequest(context_id=sent[0]["task"]["contextId"], include_artifacts=True))))

    async def cancel_under_stream():
        events, cancelled = [], None
        async for event in streaming.send_message(request("wait hello")):
            events.append(MessageToDict(event))
            if len(events) == 2:
                cancelled = await one(unary.cancel_task(CancelTaskRequest(id=task_id(events))))
        return {"events": events, "cancelled": cancelled}
    await do("cancel under a stream", cancel_under_stream)

    async def cancel():
        waiting = await every(unary.send_message(request("wait hello", immediately=True)))
        await until_working(unary, task_id(waiting))
        return await one(unary.cancel_task(CancelTaskRequest(id=task_id(waiting))))
    await do("cancel", cancel)

    async def subscribe():
        slow = await every(unary.send_message(request("slow hello", immediately=True)))
        await until_working(unary, task_id(slow))
        return await every(streaming.subscribe(SubscribeToTaskRequest(id=task_id(slow))))
    await do("subscribe", subscribe)

    async def leave():
        stream = streaming.send_message(request("slow hello"))
        first = MessageToDict(await anext(stream))
        await stream.aclose()
        task = first["task"]["id"]
        for _ in range(100):
            last = await one(unary.get_task(GetTaskRequest(id=task)))
            if last["status"]["state"] == "TASK_STATE_COMPLETED":
                return [first, last]
            await asyncio.sleep(0.1)
        return "the task did not go on"
    await do("stream left after one event", leave)

    config = TaskPushNotificationConfig(task_id=done, id="hook", url="https://hooks.example.com/a?b=c%20d", token="t\u00f6ken",
                                        authentication=AuthenticationInfo(scheme="Bearer", credentials="s3cret"))
    await do("push create", lambda: one(unary.create_task_push_notification_config(config)))
    await do("push get", lambda: one(unary.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(task_id=done, id="hook"))))
    await do("push list", lambda: one(unary.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(task_id=done))))
    await do("push delete", lambda: one(unary.delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest(task_id=done, id="hook"))))
    await do("push list, empty", lambda: one(unary.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(task_id=done))))
    await do("error push get, deleted", lambda: one(unary.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(task_id=done, id="hook"))))
    context = ClientCallContext(service_parameters={"A2A-Extensions": EXTENSION + ",https://example.com/extensions/two"})
    await do("get with extensions", lambda: one(unary.get_task(GetTaskRequest(id=done), context=context)))
    await do("extended card", lambda: one(unary.get_extended_agent_card(GetExtendedAgentCardRequest())))
    await do("error get, unknown task", lambda: one(unary.get_task(GetTaskRequest(id="nope"))))
    await do("error cancel, ended task", lambda: one(unary.cancel_task(CancelTaskRequest(id=done))))
    await do("error cancel, unknown task", lambda: one(unary.cancel_task(CancelTaskRequest(id="nope"))))
    await do("error send, agent fails", lambda: every(unary.send_message(request("fail hello"))))
    await do("error stream, agent fails", lambda: every(streaming.send_message(request("fail hello"))))
    await do("error send, unknown task", lambda: every(unary.send_message(request("echo hello", task_id="nope"))))
    await do("error stream, unknown task", lambda: every(streaming.send_message(request("echo hello", task_id="nope"))))
    await do("error subscribe, unknown task", lambda: every(streaming.subscribe(SubscribeToTaskRequest(id="nope"))))


async def main():
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, BASE).get_agent_card()
        for interface in card.supported_interfaces:
            leads_here(interface.url)
        await step("card", lambda: one(asyncio.sleep(0, card)))
        clients = [await ClientFactory(ClientConfig(httpx_client=http, streaming=s)).create_from_url(BASE) for s in (False, True)]
        await operations(http, "by card", *clients)
    # The transport alone, always speaking v1.0, whatever the card says.
    async with httpx.AsyncClient(timeout=30, headers={"A2A-Version": "1.0"}) as http:
        direct = JsonRpcTransport(http, card, BASE)
        send = lambda text: one(direct.send_message(request(text)))
        await step("transport: send", lambda: send("echo direct"))
        await step("transport: stream", lambda: every(direct.send_message_streaming(request("chunks direct"))))
        await step("error transport: get, unknown task", lambda: one(direct.get_task(GetTaskRequest(id="nope"))))
    print_report()


asyncio.run(main())
