"""ASGI layers of the sample agents that see every request before the SDK does."""
import json


class Seen:
    """Keeps what arrived, in order, and answers GET /seen with it and DELETE /seen by forgetting it.

    Each entry holds what a relay must carry (HTTP method, JSON-RPC method, the service parameters line by
    line) and the User-Agent, which it must not: that is how a test knows which road a request took.
    """

    def __init__(self, app):
        self.app, self.seen = app, []

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if scope["path"] == "/seen":
            body = json.dumps(self.seen).encode()
            if scope["method"] == "DELETE":
                self.seen.clear()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
            return await send({"type": "http.response.body", "body": body})
        messages, body, more = [], b"", scope["method"] == "POST"
        while more:
            message = await receive()
            messages.append(message)
            body += message.get("body", b"")
            more = message.get("more_body", False)
        lines = lambda name: [v.decode() for k, v in scope["headers"] if k == name]
        try:
            rpc = json.loads(body).get("method")
        except (ValueError, AttributeError):
            rpc = None
        self.seen.append({"http": scope["method"], "rpc": rpc, "user-agent": lines(b"user-agent"),
                          **{n: lines(n.encode()) for n in ("a2a-version", "a2a-extensions", "x-a2a-extensions")}})

        async def replay():
            return messages.pop(0) if messages else await receive()

        await self.app(scope, replay, send)
