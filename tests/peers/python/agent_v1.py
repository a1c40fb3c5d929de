"""Sample A2A agent on a2a-sdk 1.x: JSON-RPC and SSE, push configurations, an extended card.

The first word of the message text says what it does. Environment: AGENT_PORT; AGENT_PUBLIC_URL, the URL written
into the card (default: its own); AGENT_V03=1 also serves the v0.3 methods on the same URL; AGENT_SIGNED=1 signs both
cards with a key of ES256 and one of EdDSA, whose public halves are at /keys.
"""
import asyncio
import os

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import Route

from a2a.server.agent_execution.agent_executor import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks.inmemory_push_notification_config_store import InMemoryPushNotificationConfigStore
from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
from a2a.server.tasks.task_updater import TaskUpdater
from a2a.types import (AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentProvider, AgentSkill, Part,
                       Task, TaskState, TaskStatus)
from a2a.utils.errors import ContentTypeNotSupportedError
from seen import Seen

PORT = int(os.environ["AGENT_PORT"])
PUBLIC = os.environ.get("AGENT_PUBLIC_URL", f"http://127.0.0.1:{PORT}").rstrip("/")
V03 = os.environ.get("AGENT_V03") == "1"
EXTENSION = "https://example.com/extensions/one"


class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        update = TaskUpdater(event_queue, context.task_id, context.context_id)
        if word == "message":
            return await event_queue.enqueue_event(update.new_agent_message([Part(text=f"plain answer: {rest}")]))
        if word == "fail":
            raise ContentTypeNotSupportedError(message=f"cannot take this: {rest}")
        if context.current_task is None:
            await event_queue.enqueue_event(Task(id=context.task_id, context_id=context.context_id, history=[context.message],
                                                 status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)))
        answer = update.new_agent_message([Part(text=f"done: {rest}")])
        if word == "chunks":
            await update.start_work()
            for i in range(5):
                await update.add_artifact([Part(text=f"chunk {i} {rest} ")], artifact_id="chunks", name="chunks",
                                          append=i > 0, last_chunk=i == 4)
                await asyncio.sleep(0.02)
            await update.complete(answer)
        elif word == "many":
            await update.start_work()
            for i in range(200):
                await update.add_artifact([Part(text=f"{i} \u00e9 \U0001f600 \"\\ {rest}")], artifact_id="many", append=i > 0)
            await update.complete()
        elif word == "slow":
            await update.start_work()
            await asyncio.sleep(2.5)
            await update.add_artifact([Part(text=f"late {rest}")], artifact_id="late")
            await update.complete(answer)
        elif word == "wait":
            await update.start_work()
            await asyncio.sleep(60)
            await update.complete(answer)
        elif word == "input":
            await update.requires_input(update.new_agent_message([Part(text="say more")]))
        elif word == "reject":
            await update.reject(update.new_agent_message([Part(text="no")]))
        else:
            await update.add_artifact([Part(text=text)], artifact_id="echo", name="echo")
            await update.complete(answer)

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


KEYS = {}
if os.environ.get("AGENT_SIGNED") == "1":
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    KEYS = {"ES256": ec.generate_private_key(ec.SECP256R1()), "EdDSA": ed25519.Ed25519PrivateKey.generate()}


def signed(card):
    for alg, key in KEYS.items():
        from a2a.utils.signing import create_agent_card_signer
        card = create_agent_card_signer(key, {"alg": alg, "kid": alg, "typ": "JOSE", "jku": None})(card)
    return card


async def keys(request):
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
    return JSONResponse({alg: key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
                         for alg, key in KEYS.items()})


def card(extended=False):
    versions = ["1.0", "0.3"] if V03 else ["1.0"]
    skills = [AgentSkill(id="echo", name="Echo", description="Answers what it was told", tags=["test"], examples=["echo hello"])]
    if extended:
        skills.append(AgentSkill(id="hidden", name="Hidden", description="Only in the extended card", tags=["test"]))
    return signed(AgentCard(name="sample v1" + (" extended" if extended else ""), description="Sample agent on a2a-sdk 1.x",
                     version="1.2.3", provider=AgentProvider(organization="Example", url="https://example.com"),
                     supported_interfaces=[AgentInterface(url=PUBLIC + "/", protocol_binding="JSONRPC", protocol_version=v)
                                           for v in versions],
                     capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True,
                                                    extensions=[AgentExtension(uri=EXTENSION)]),
                     default_input_modes=["text/plain"], default_output_modes=["text/plain"], skills=skills))


handler = DefaultRequestHandler(agent_executor=Executor(), task_store=InMemoryTaskStore(), agent_card=card(),
                                push_config_store=InMemoryPushNotificationConfigStore(), extended_agent_card=card(True))
app = Starlette(middleware=[Middleware(Seen)],
                routes=[Route("/keys", keys), *create_agent_card_routes(card(), cache_control="public, max-age=60"),
                        *create_jsonrpc_routes(handler, rpc_url="/", enable_v0_3_compat=V03)])
if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
