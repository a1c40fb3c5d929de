"""Fetches the signed cards of agent_v1.py from BASE and verifies them with the SDK's own verifier.

Usage: client_signed.py BASE AGENT. AGENT is the agent's own URL, where its keys are; a relay may stand at BASE.
Prints one line for each finding and ends with an error at the first that is not as it must be.
"""
import asyncio
import copy
import json
import sys

import httpx

from a2a.client import A2ACardResolver
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import InvalidSignaturesError, NoSignatureError, create_signature_verifier

BASE, AGENT = sys.argv[1].rstrip("/"), sys.argv[2].rstrip("/")
ORIGINAL = "/.well-known/agent-card.json?original=true"


def refused(error, act):
    try:
        act()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


async def main():
    async with httpx.AsyncClient(timeout=30) as http:
        keys = (await http.get(AGENT + "/keys")).json()
        assert sorted(keys) == ["ES256", "EdDSA"], keys
        # Each verifier accepts one algorithm alone: the SDK is content with any valid signature.
        verifiers = {alg: create_signature_verifier(lambda kid, jku: keys[kid], [alg]) for alg in keys}
        direct = (await http.get(AGENT + "/.well-known/agent-card.json")).content
        assert (await http.get(BASE + ORIGINAL)).content == direct, "the card's octets changed"
        object = {"jsonrpc": "2.0", "id": "a", "method": "GetExtendedAgentCard", "params": {}}
        answer = (await http.post(BASE + "/", json=object, headers={"A2A-Version": "1.0"})).json()
        assert answer["id"] == "a", answer
        for alg, verify in verifiers.items():
            card = await A2ACardResolver(http, BASE).get_agent_card(ORIGINAL, signature_verifier=verify)
            assert len(card.signatures) == 2
            print(f"card: {alg} verifies")
            altered = copy.deepcopy(card)
            altered.description += "."
            refused(InvalidSignaturesError, lambda: verify(altered))
            verify(parse_agent_card(answer["result"]))
            print(f"extended card: {alg} verifies")
        if BASE != AGENT:
            shown = await A2ACardResolver(http, BASE).get_agent_card()
            refused(NoSignatureError, lambda: verifiers["ES256"](shown))
            print("the card with the relay's URL carries no signature")


asyncio.run(main())
