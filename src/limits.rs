//! Every bound of the relay in one place, with the relations between them
//! asserted at compile time. `[limits]` in the configuration lowers the ones
//! that a deployment may lower; nothing raises them. A time whose default is not
//! its bound has a `_MAX` beside it.
#![forbid(unsafe_code)]

use std::time::Duration;

/// Frames that are sealed or opened in one call.
pub const AEAD_BATCH_FRAMES: usize = 16;

/// Largest N-PAMP frame, header and tag included, in octets.
pub const FRAME_OCTETS_MAX: usize = 16 * 1024 * 1024;
/// Largest foreign message (JSON-RPC object, document part), in octets.
pub const FOREIGN_MESSAGE_OCTETS_MAX: usize = 8 * 1024 * 1024;
/// Largest handshake frame payload, in octets: KEM share, identity and signature of the largest profile fit.
pub const HANDSHAKE_PAYLOAD_OCTETS_MAX: usize = 64 * 1024;
/// Largest payload of a Control-channel frame after the handshake (HELLO, PING, ERROR …), in octets.
pub const CONTROL_PAYLOAD_OCTETS_MAX: usize = 64 * 1024;
/// Largest payload octets of a PING that is echoed; a longer one is a protocol error.
pub const PING_PAYLOAD_OCTETS_MAX: usize = 1024;
/// Longest text in an ERROR or CLOSE body, in octets; the rest is cut.
pub const ERROR_TEXT_OCTETS_MAX: usize = 512;
/// Entries in a HELLO `protocols`, `params` or `grease` list.
pub const HELLO_ENTRIES_MAX: usize = 256;
/// Outstanding exchanges per association and direction.
pub const EXCHANGES_PER_ASSOCIATION_MAX: usize = 4096;
/// Longest method name the envelope can carry, in octets (its length field is one octet).
pub const METHOD_OCTETS_MAX: usize = 255;
/// Longest correlation_id, in octets (its length field is one octet).
pub const CORRELATION_ID_OCTETS_MAX: usize = 255;
/// Random octets that open every correlation_id of ours (ruling R11).
pub const CORRELATION_RANDOM_OCTETS: usize = 16;
/// Exchanges per channel whose caller left and whose late replies are still told from unknown ones.
pub const ABANDONED_EXCHANGES_REMEMBERED_MAX: usize = 256;
/// Sealed octets in flight per association before sealing waits.
pub const IN_FLIGHT_OCTETS_MAX: usize = 256 * 1024;
/// Unsealed octets queued per association above which sources pause.
pub const OUTBOUND_QUEUE_HIGH_OCTETS: usize = 1024 * 1024;
/// Unsealed octets queued per association below which sources resume.
pub const OUTBOUND_QUEUE_LOW_OCTETS: usize = 256 * 1024;
/// Foreign-message octets held per association, all directions and queues; above it requests are NotDelivered.
pub const ASSOCIATION_OCTETS_MAX: usize = 64 * 1024 * 1024;
/// Deepest nesting of a received CBOR item.
pub const CBOR_DEPTH_MAX: usize = 16;
/// Capacity that a deframer keeps for the next straddling frame, in octets; a larger buffer is given back.
pub const DEFRAMER_RETAINED_OCTETS_MAX: usize = 4096;
/// Foreign-message octets held per process.
pub const PROCESS_OCTETS_MAX: usize = 1024 * 1024 * 1024;
/// Frames in one queue between a shard and a mapping worker.
pub const QUEUE_FRAMES_MAX: usize = 4096;
/// Octets in one queue between a shard and a mapping worker.
pub const QUEUE_OCTETS_MAX: usize = 8 * 1024 * 1024;
/// Frames waiting for a mapping worker above which sources pause: what waits there is latency for whoever comes next.
pub const QUEUE_HIGH_FRAMES: usize = 512;
/// Frames waiting for a mapping worker below which sources resume.
pub const QUEUE_LOW_FRAMES: usize = 128;
/// Size of one provided receive buffer, in octets.
pub const RECEIVE_BUFFER_OCTETS: usize = 64 * 1024;
/// Provided receive buffers per shard; a power of two.
pub const RECEIVE_BUFFERS: u16 = 64;
/// Octets one armed multishot receive may take, give or take one buffer, before it must be armed again.
pub const RECEIVE_CREDIT_OCTETS: u32 = 512 * 1024;
/// Associations one shard owns.
pub const ASSOCIATIONS_PER_SHARD_MAX: usize = 65_536;
/// Inbound handshakes under way at once; further connections wait in the backlog.
pub const INBOUND_HANDSHAKES_MAX: usize = 256;
/// Outbound dials under way at once, a budget of their own so that a flood cannot block recovery.
pub const OUTBOUND_HANDSHAKES_MAX: usize = 64;
/// Tag failures after which an association closes (ruling R24).
pub const TAG_FAILURES_MAX: u32 = 8;
/// Replies to PING and KEY_UPDATE that wait to be sealed on one association; further ones are not answered.
pub const REPLIES_QUEUED_MAX: usize = 16;
/// ERROR frames that wait to be sealed on one association; further ones are only counted.
pub const ERRORS_QUEUED_MAX: usize = 16;
/// Frames kept free below an epoch's bound, so that KEY_UPDATE, or ERROR and CLOSE, still fit under it.
pub const KEY_UPDATE_FRAMES_RESERVED: u64 = 3;
/// Association pools (distinct service-parameter sets) per route (ruling R13).
pub const PARAMETER_SETS_PER_ROUTE_MAX: usize = 8;
/// Longest value of one service parameter line, in octets.
pub const PARAMETER_VALUE_OCTETS_MAX: usize = 1024;
/// Service parameter lines in one request.
pub const PARAMETER_LINES_MAX: usize = 16;
/// HTTP request head, in octets.
pub const HTTP_HEAD_OCTETS_MAX: usize = 64 * 1024;
/// HTTP connections per ingress unit.
pub const HTTP_CONNECTIONS_MAX: usize = 16_384;
/// Concurrent streams of one HTTP/2 client connection.
pub const HTTP2_STREAMS_MAX: u32 = 1024;
/// Readiness events of HTTP sockets that a unit takes at once: as many go through the mapping
/// together. With more the two relays of a way take turns instead of working at the same time,
/// with fewer each asks the kernel too often.
pub const EVENTS_PER_POLL_MAX: usize = 8;

/// Steps of a unit's tasks after which the kernel is asked what its sockets have, however much
/// is ready to run: a stream that always has more keeps new connections waiting no longer.
pub const STEPS_PER_POLL_MAX: u32 = 8;
/// Read and write buffer of one HTTP/1.1 connection, in octets, above its head.
pub const HTTP_BUFFER_OCTETS: usize = 256 * 1024;
/// Octets of HTTP bodies being read at one edge, all connections together.
pub const EDGE_BODIES_OCTETS_MAX: usize = 512 * 1024 * 1024;
/// Octets of a refused request body that are still read, so that the client sees the answer.
pub const HTTP_LINGER_OCTETS: usize = 64 * 1024 * 1024;
/// One SSE event's data from an agent, in octets; it must fit a foreign message.
pub const SSE_EVENT_OCTETS_MAX: usize = FOREIGN_MESSAGE_OCTETS_MAX;
/// Events of one stream kept at an ingress, those included that wait for a slow client, which is cut beyond it (ruling R19).
pub const WINDOW_EVENTS_MAX: usize = 65_536;
/// Octets of one stream kept at an ingress.
pub const WINDOW_OCTETS_MAX: usize = 16 * 1024 * 1024;
/// Octets of all streams together kept at an ingress, per process.
pub const WINDOW_PROCESS_OCTETS_MAX: usize = 512 * 1024 * 1024;
/// Streams without a client that an ingress keeps all the same, per unit.
pub const DETACHED_STREAMS_MAX: usize = 8192;
/// Events on their way to a client that came back on another unit than its stream's.
pub const EVENTS_BETWEEN_UNITS_MAX: usize = 16;
/// Octets of a Request that a stream without a client is remembered with and that count as part of it, not of its octets.
pub const TICKET_OCTETS_FREE: usize = 256;
/// Longest task id by which a detached stream is found, in octets.
pub const TASK_ID_OCTETS_MAX: usize = 256;
/// Events of one stream kept for a consumer that resumes it (NPAMP-CC-STREAM §6.1).
pub const REPLAY_EVENTS_MAX: usize = 1024;
/// Octets of one stream kept for a consumer that resumes it.
pub const REPLAY_OCTETS_MAX: usize = 4 * 1024 * 1024;
/// Events of one stream in transit that wait to be sent for the first time. It cannot be
/// slowed down, so that this is more than is kept of a stream whose agent can be paused.
pub const TRANSIT_EVENTS_MAX: usize = 16_384;
/// Octets of one stream in transit that wait to be sent for the first time.
pub const TRANSIT_OCTETS_MAX: usize = 16 * 1024 * 1024;
/// Transit relays that an exchange passes; the next one refuses it.
pub const HOPS_MAX: u8 = 8;
/// Octets of all streams together kept for consumers that resume them, per process.
pub const REPLAY_PROCESS_OCTETS_MAX: usize = 512 * 1024 * 1024;
/// Streams that are detached or ended and kept all the same, per mapper.
pub const RETAINED_STREAMS_MAX: usize = 8192;
/// Octets of a stream's events that go from the mapper to its client as one. One event may have more.
pub const STREAM_BATCH_OCTETS_MAX: usize = 32 * 1024;
/// What a kept event counts for beside its octets.
pub const HELD_EVENT_OCTETS: usize = 64;
/// Octets of kept events that go out before the association is asked for room again.
pub const REPLAY_BURST_OCTETS: usize = 128 * 1024;
/// Payload of a discovery frame that is taken, in octets.
pub const DISCOVERY_PAYLOAD_OCTETS_MAX: usize = 256 * 1024;
/// Longest `corr` of a discovery exchange, in octets (NPAMP-DISC §4.2).
pub const DISCOVERY_CORR_OCTETS_MAX: usize = 64;
/// Longest record_id, in octets (NPAMP-DISC §5).
pub const DISCOVERY_RECORD_ID_OCTETS_MAX: usize = 32;
/// Longest agent_id, in octets (NPAMP-DISC §5.4).
pub const DISCOVERY_AGENT_ID_OCTETS_MAX: usize = 64;
/// Longest pagination cursor that is taken, in octets.
pub const DISCOVERY_CURSOR_OCTETS_MAX: usize = 1024;
/// Entries in a list of a discovery record or filter.
pub const DISCOVERY_LIST_ENTRIES_MAX: usize = 256;
/// Records, or record_ids, in one discovery frame that is taken.
pub const DISCOVERY_RECORDS_PER_FRAME_MAX: usize = 1024;
/// Records in one page that is sent.
pub const DISCOVERY_PAGE_RECORDS_MAX: usize = 64;
/// Octets of records in one page that is sent.
pub const DISCOVERY_PAGE_OCTETS_MAX: usize = 64 * 1024;
/// Live subscriptions of a peer per association.
pub const DISCOVERY_SUBSCRIPTIONS_MAX: usize = 8;
/// Pagination cursors that are known per association; the oldest are forgotten.
pub const DISCOVERY_CURSORS_MAX: usize = 8;
/// Discovery queries and subscriptions that may come at once on an association.
pub const DISCOVERY_QUERIES_BURST_MAX: u32 = 32;
/// Records of a peer that are held per association.
pub const DISCOVERY_LEARNED_RECORDS_MAX: usize = 256;
/// Octets of records of a peer that are held per association.
pub const DISCOVERY_LEARNED_OCTETS_MAX: usize = 64 * 1024;
/// Outstanding discovery queries of ours per association.
pub const DISCOVERY_QUERIES_OUTSTANDING_MAX: usize = 64;
/// Records of one result that is put together.
pub const DISCOVERY_RESULT_RECORDS_MAX: usize = 4096;
/// Octets of records of one result that is put together.
pub const DISCOVERY_RESULT_OCTETS_MAX: usize = 1024 * 1024;
/// Pages of one result that are asked for.
pub const DISCOVERY_PAGES_MAX: usize = 256;
/// Agent card, in octets.
pub const CARD_OCTETS_MAX: usize = 1024 * 1024;
/// Agent cards that an ingress keeps to serve them again, per unit.
pub const CARDS_CACHED_MAX: usize = 1024;
/// Octets of these.
pub const CARDS_CACHED_OCTETS_MAX: usize = 64 * 1024 * 1024;
/// Reassembled document, in octets.
pub const DOCUMENT_OCTETS_MAX: usize = FOREIGN_MESSAGE_OCTETS_MAX;
/// Octets of one part of a document set that is sent; a longer document or proof is cut.
pub const DOCUMENT_PART_OCTETS_MAX: usize = 256 * 1024;
/// All proofs of one document set, in octets.
pub const DOCUMENT_PROOFS_OCTETS_MAX: usize = FOREIGN_MESSAGE_OCTETS_MAX;
/// Parts of one document set that are taken.
pub const DOCUMENT_PARTS_MAX: usize = 16_384;
/// One request of the conformance adapter, in octets.
pub const CONFORMANCE_REQUEST_OCTETS_MAX: usize = 16 * 1024 * 1024;
/// Log lines that wait for a slow reader; further ones are dropped and counted.
pub const LOG_LINES_WAITING_MAX: usize = 16_384;
/// Configuration file, in octets.
pub const CONFIG_OCTETS_MAX: usize = 1024 * 1024;
/// Calls that wait for a route's association to come up, per unit.
pub const CALLS_WAITING_MAX: usize = 4096;

/// Octets that a lowered octet limit must leave.
pub const LOWERED_OCTETS_MIN: usize = 1024;
/// `[[listen]]` tables, and `[[ingress]]` tables, in a configuration.
pub const LISTENERS_MAX: usize = 64;
/// `[[agent]]` tables in a configuration.
pub const AGENTS_MAX: usize = 4096;
/// Upstreams of one route.
pub const UPSTREAMS_PER_ROUTE_MAX: usize = 16;
/// `[[route]]` tables in a configuration.
pub const ROUTES_MAX: usize = 4096;
/// Allowed initiators of one listener.
pub const PEERS_MAX: usize = 4096;
/// Mapping worker threads.
pub const WORKERS_MAX: usize = 64;
/// Core numbers that can be named, from 0.
pub const CORES_MAX: usize = 1024;
/// One PEM, token or credential file, in octets.
pub const PEM_FILE_OCTETS_MAX: usize = 1024 * 1024;
/// Idle connections kept to one agent, per unit.
pub const AGENT_IDLE_CONNECTIONS_MAX: usize = 256;
/// Connections to the admin listener; further ones wait in the backlog.
pub const ADMIN_CONNECTIONS_MAX: usize = 16;
/// Tasks that the demonstration agent remembers; the oldest are forgotten.
pub const DEMO_TASKS_MAX: usize = 1024;
/// Message octets that the demonstration agent remembers, all tasks together.
pub const DEMO_OCTETS_MAX: usize = 64 * 1024 * 1024;
/// Events that the demonstration agent makes of one message.
pub const DEMO_EVENTS_MAX: usize = 64;
/// Push notification configurations per task of the demonstration agent.
pub const DEMO_PUSH_CONFIGS_MAX: usize = 16;
/// One push notification configuration of the demonstration agent, in octets.
pub const DEMO_PUSH_CONFIG_OCTETS_MAX: usize = 4096;
/// Connections to the demonstration agent; further ones wait in the backlog.
pub const DEMO_CONNECTIONS_MAX: usize = 4096;

/// TLS and N-PAMP handshake together.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// Time a peer's HELLO may take where HELLO is optional (ruling R6); then the association goes on without.
pub const HELLO_OPTIONAL_TIME: Duration = Duration::from_secs(1);
/// Unary exchange from request to reply.
pub const UNARY_TIME: Duration = Duration::from_secs(60);
/// Longest deadline that a unary exchange may be given; people's agents think for minutes.
pub const UNARY_TIME_MAX: Duration = Duration::from_secs(3600);
/// How long an ingress serves an agent card again before it asks for it anew.
pub const CARD_TIME: Duration = Duration::from_secs(60);
/// Longest such time that may be configured.
pub const CARD_TIME_MAX: Duration = Duration::from_secs(86_400);
/// SSE head goes out with the first event or after this (ruling R27).
pub const STREAM_HEAD_TIME: Duration = Duration::from_secs(1);
/// Keep-alive comment on an idle SSE response at the ingress.
pub const SSE_KEEP_ALIVE_TIME: Duration = Duration::from_secs(15);
/// Shortest keep-alive comment interval.
pub const SSE_KEEP_ALIVE_TIME_MIN: Duration = Duration::from_millis(10);
/// Time a stream can be resumed after its association is gone or it has ended.
pub const RETENTION_TIME: Duration = Duration::from_secs(120);
/// Time a client that left its stream may come back before the stream is cancelled.
pub const DETACH_GRACE_TIME: Duration = Duration::from_secs(30);
/// Longest such time that may be configured.
pub const DETACH_GRACE_TIME_MAX: Duration = Duration::from_secs(600);
/// Time an ingress tries to get an association back for the streams that were on it.
pub const RESUME_TIME: Duration = Duration::from_secs(30);
/// Pause before the first attempt to get an association back; doubled with each, and jittered.
pub const REDIAL_TIME_MIN: Duration = Duration::from_millis(20);
/// Longest pause between two attempts.
pub const REDIAL_TIME_MAX: Duration = Duration::from_secs(2);
/// Pause before an upstream that failed is tried again; doubled with each failure, and
/// jittered. An association that lived shorter than the pause counts as a failure.
pub const EJECTION_TIME_MIN: Duration = Duration::from_millis(200);
/// Longest pause before an upstream that failed is tried again.
pub const EJECTION_TIME_MAX: Duration = Duration::from_secs(10);
/// After a second failed dial in a row, time for which calls fail without another where no
/// other upstream takes them; doubled with each failure.
pub const DIAL_REFUSAL_TIME_MIN: Duration = Duration::from_millis(20);
/// Longest time for which calls fail without a dial.
pub const DIAL_REFUSAL_TIME_MAX: Duration = Duration::from_millis(200);
/// Silence after which an association is probed with PING.
pub const IDLE_PROBE_TIME: Duration = Duration::from_secs(20);
/// Longest silence that may be configured before a PING.
pub const IDLE_PROBE_TIME_MAX: Duration = Duration::from_secs(600);
/// Time a PING may go unanswered.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time that may be configured for a PING to go unanswered.
pub const PROBE_TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Time CLOSE waits for CLOSE_ACK.
pub const CLOSE_TIME: Duration = Duration::from_secs(2);
/// Time in-flight exchanges may finish after SIGTERM.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// Longest shutdown grace that may be configured.
pub const SHUTDOWN_GRACE_MAX: Duration = Duration::from_secs(3600);
/// TCP connect to an agent or an upstream.
pub const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Time an HTTP client may take to send its request head.
pub const HTTP_HEAD_TIME: Duration = Duration::from_secs(30);
/// Time without one octet of a request body after which the client is given up.
pub const HTTP_BODY_TIME: Duration = Duration::from_secs(30);
/// Pause between two events of a demonstration stream.
pub const DEMO_EVENT_TIME: Duration = Duration::from_millis(200);
/// Silence after which an HTTP client connection without a request is closed.
pub const HTTP_IDLE_TIME: Duration = Duration::from_secs(75);
/// Time a peer may leave sent octets unacknowledged or its window closed.
pub const HTTP_WRITE_STALL_TIME: Duration = Duration::from_secs(60);
/// Time a refused request body is still read, so that the client sees the answer.
pub const HTTP_LINGER_TIME: Duration = Duration::from_secs(2);
/// Time after which one more discovery query may come.
pub const DISCOVERY_QUERY_TIME: Duration = Duration::from_millis(100);
/// Time for which an agent that has answered stays advertised, whatever becomes of the next connections to it.
pub const DISCOVERY_REACH_TIME: Duration = Duration::from_secs(1);
/// Time that a pagination cursor is known.
pub const DISCOVERY_CURSOR_TIME: Duration = Duration::from_secs(60);
/// Idle time after which a pooled connection to an agent is closed.
pub const HTTP_POOL_IDLE_TIME: Duration = Duration::from_secs(30);
/// Silence after which a connection is probed by TCP or HTTP/2.
pub const HTTP_PROBE_TIME: Duration = Duration::from_secs(20);

const _: () = {
    assert!(
        FOREIGN_MESSAGE_OCTETS_MAX + 4096 < FRAME_OCTETS_MAX,
        "a foreign message fits one frame"
    );
    assert!(PING_PAYLOAD_OCTETS_MAX < CONTROL_PAYLOAD_OCTETS_MAX);
    assert!(OUTBOUND_QUEUE_LOW_OCTETS < OUTBOUND_QUEUE_HIGH_OCTETS);
    assert!(OUTBOUND_QUEUE_HIGH_OCTETS < ASSOCIATION_OCTETS_MAX);
    assert!(ASSOCIATION_OCTETS_MAX < PROCESS_OCTETS_MAX);
    assert!(QUEUE_LOW_FRAMES < QUEUE_HIGH_FRAMES);
    assert!(QUEUE_HIGH_FRAMES < QUEUE_FRAMES_MAX);
    assert!(
        QUEUE_OCTETS_MAX >= FOREIGN_MESSAGE_OCTETS_MAX,
        "a queue holds the largest message"
    );
    assert!(WINDOW_OCTETS_MAX >= FOREIGN_MESSAGE_OCTETS_MAX);
    assert!(WINDOW_OCTETS_MAX < WINDOW_PROCESS_OCTETS_MAX);
    assert!(DETACH_GRACE_TIME.as_secs() <= DETACH_GRACE_TIME_MAX.as_secs());
    assert!(REPLAY_OCTETS_MAX < REPLAY_PROCESS_OCTETS_MAX);
    assert!(TRANSIT_OCTETS_MAX < REPLAY_PROCESS_OCTETS_MAX);
    assert!(TRANSIT_OCTETS_MAX >= FOREIGN_MESSAGE_OCTETS_MAX);
    assert!(
        TRANSIT_EVENTS_MAX >= 2 * QUEUE_FRAMES_MAX,
        "what a queue to a worker holds is no lag"
    );
    assert!(
        HOPS_MAX as usize <= PARAMETER_SETS_PER_ROUTE_MAX,
        "a loop of one set of service parameters is ended by its hops"
    );
    assert!(
        REPLAY_BURST_OCTETS < OUTBOUND_QUEUE_HIGH_OCTETS,
        "one burst does not fill a queue"
    );
    assert!(DIAL_REFUSAL_TIME_MIN.as_millis() < DIAL_REFUSAL_TIME_MAX.as_millis());
    assert!(DIAL_REFUSAL_TIME_MAX.as_millis() <= EJECTION_TIME_MIN.as_millis());
    assert!(EJECTION_TIME_MIN.as_millis() < EJECTION_TIME_MAX.as_millis());
    assert!(
        UPSTREAMS_PER_ROUTE_MAX <= 16,
        "a call remembers in 16 bits where it was tried"
    );
    assert!(RESUME_TIME.as_secs() <= RETENTION_TIME.as_secs());
    assert!(CARD_OCTETS_MAX <= CARDS_CACHED_OCTETS_MAX);
    assert!(LOWERED_OCTETS_MIN < FOREIGN_MESSAGE_OCTETS_MAX);
    assert!(DOCUMENT_PART_OCTETS_MAX >= LOWERED_OCTETS_MIN);
    assert!(
        DOCUMENT_PARTS_MAX
            >= (CARD_OCTETS_MAX + DOCUMENT_PROOFS_OCTETS_MAX) / LOWERED_OCTETS_MIN + 2 * 256,
        "every set that is sent is taken"
    );
    assert!(DEMO_OCTETS_MAX >= FOREIGN_MESSAGE_OCTETS_MAX);
    assert!(RECEIVE_BUFFERS.is_power_of_two());
    assert!(RECEIVE_CREDIT_OCTETS as usize >= RECEIVE_BUFFER_OCTETS);
    assert!(RECEIVE_CREDIT_OCTETS as usize <= RECEIVE_BUFFER_OCTETS * RECEIVE_BUFFERS as usize / 4);
    assert!(CORRELATION_RANDOM_OCTETS < CORRELATION_ID_OCTETS_MAX);
    assert!(DISCOVERY_CORR_OCTETS_MAX <= CORRELATION_ID_OCTETS_MAX);
    assert!(DISCOVERY_PAGE_OCTETS_MAX < DISCOVERY_PAYLOAD_OCTETS_MAX);
    assert!(DISCOVERY_PAGE_RECORDS_MAX <= DISCOVERY_RECORDS_PER_FRAME_MAX);
};
