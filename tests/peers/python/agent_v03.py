"""Sample A2A agent on a2a-sdk 0.3.x: JSON-RPC and SSE, push configurations, an extended card.

The first word of the message text says what it does. Environment: AGENT_PORT; AGENT_PUBLIC_URL, the URL written
into the card (default: its own).
"""
import asyncio
import os

import uvicorn
from starlette.middleware import Middleware

from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryPushNotificationConfigStore, InMemoryTaskStore, TaskUpdater
from a2a.types import (AgentCapabilities, AgentCard, AgentExtension, AgentProvider, AgentSkill, ContentTypeNotSupportedError,
                       Part, TaskNotCancelableError, TaskState, TextPart)
from a2a.utils import new_task
from a2a.utils.errors import ServerError
from seen import Seen

PORT = int(os.environ["AGENT_PORT"])
PUBLIC = os.environ.get("AGENT_PUBLIC_URL", f"http://127.0.0.1:{PORT}").rstrip("/")
EXTENSION = "https://example.com/extensions/one"
ENDED = {TaskState.completed, TaskState.canceled, TaskState.failed, TaskState.rejected}


def part(text):
    return Part(root=TextPart(text=text))


class Executor(AgentExecutor):
    async def execute(self, context, event_queue):
        text = context.get_user_input()
        word, _, rest = text.partition(" ")
        if word == "message":
            update = TaskUpdater(event_queue, context.task_id, context.context_id)
            return await event_queue.enqueue_event(update.new_agent_message([part(f"plain answer: {rest}")]))
        if word == "fail":
            raise ServerError(ContentTypeNotSupportedError(message=f"cannot take this: {rest}"))
        task = context.current_task
        if task is None:
            task = new_task(context.message)
            await event_queue.enqueue_event(task)
        update = TaskUpdater(event_queue, task.id, task.context_id)
        answer = update.new_agent_message([part(f"done: {rest}")])
        if word == "chunks":
            await update.start_work()
            for i in range(5):
                await update.add_artifact([part(f"chunk {i} {rest} ")], artifact_id="chunks", name="chunks",
                                          append=i > 0, last_chunk=i == 4)
                await asyncio.sleep(0.02)
            await update.complete(answer)
        elif word == "many":
            await update.start_work()
            for i in range(200):
                await update.add_artifact([part(f"{i} \u00e9 \U0001f600 \"\\ {rest}")], artifact_id="many", append=i > 0)
            await update.complete()
        elif word == "slow":
            await update.start_work()
            await asyncio.sleep(2.5)
            await update.add_artifact([part(f"late {rest}")], artifact_id="late")
            await update.complete(answer)
        elif word == "wait":
            await update.start_work()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:  # this SDK tells a stream of its end only through the stream's own executor
                return await update.cancel()
            await update.complete(answer)
        elif word == "input":
            await update.requires_input(update.new_agent_message([part("say more")]), final=True)
        elif word == "reject":
            await update.reject(update.new_agent_message([part("no")]))
        else:
            await update.add_artifact([part(text)], artifact_id="echo", name="echo")
            await update.complete(answer)

    async def cancel(self, context, event_queue):
        task = context.current_task
        if task.status.state in ENDED:
            raise ServerError(TaskNotCancelableError(message="the task has ended"))
        await TaskUpdater(event_queue, task.id, task.context_id).cancel()


def card(extended=False):
    skills = [AgentSkill(id="echo", name="Echo", description="Answers what it was told", tags=["test"], examples=["echo hello"])]
    if extended:
        skills.append(AgentSkill(id="hidden", name="Hidden", description="Only in the extended card", tags=["test"]))
    return AgentCard(name="sample v0.3" + (" extended" if extended else ""), description="Sample agent on a2a-sdk 0.3.x",
                     version="1.2.3", url=PUBLIC + "/", protocol_version="0.3.0", preferred_transport="JSONRPC",
                     provider=AgentProvider(organization="Example", url="https://example.com"),
                     default_input_modes=["text/plain"], default_output_modes=["text/plain"], skills=skills,
                     supports_authenticated_extended_card=True,
                     capabilities=AgentCapabilities(streaming=True, push_notifications=True,
                                                    extensions=[AgentExtension(uri=EXTENSION)]))


handler = DefaultRequestHandler(agent_executor=Executor(), task_store=InMemoryTaskStore(),
                                push_config_store=InMemoryPushNotificationConfigStore())
app = A2AStarletteApplication(agent_card=card(), http_handler=handler, extended_agent_card=card(True)).build(
    middleware=[Middleware(Seen)])
if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
