// The official JavaScript client, @a2a-js/sdk, doing everything it can.
// Called as `client.mjs BASE_URL [AGENT_URL]`; prints the document that ../python/report.py describes.
// It is run from the folder that holds node_modules.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(pathToFileURL(process.cwd() + '/'));
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);
const { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory } = await load('@a2a-js/sdk/client');
const { Role, TaskState } = await load('@a2a-js/sdk');

const base = process.argv[2].replace(/\/$/, '');
const agent = (process.argv[3] ?? base).replace(/\/$/, '');
const steps = [];

async function step(name, call) {
  try {
    const value = await call();
    steps.push({ step: name, ok: true, value: value ?? null });
    return value;
  } catch (e) { // whatever the SDK throws is the result
    steps.push({ step: name, ok: false, error: e.name, text: e.message, code: e.code ?? null, data: e.data ?? null });
    return undefined;
  }
}

function printReport() {
  const sorted = (v) => Array.isArray(v) ? v.map(sorted)
    : v && typeof v === 'object' && !(v instanceof Date) ? Object.fromEntries(Object.keys(v).sort().map((k) => [k, sorted(v[k])])) : v;
  let text = JSON.stringify(sorted(steps), null, 1);
  for (const url of [...new Set([base, agent])].sort((a, b) => b.length - a.length)) {
    text = text.replaceAll(url + '/', '<url>').replaceAll(url, '<url>');
  }
  const names = new Map();
  text = text.replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, (id) => {
    if (!names.has(id)) names.set(id, `<id ${names.size + 1}>`);
    return names.get(id);
  });
  console.log(text.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?/g, '<time>'));
}

const request = (text, { taskId = '', contextId = '', immediately = false } = {}) => ({
  tenant: '', metadata: undefined,
  message: {
    messageId: crypto.randomUUID(), role: Role.ROLE_USER, contextId, taskId, extensions: [], referenceTaskIds: [], metadata: undefined,
    parts: [{ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' }],
  },
  configuration: { acceptedOutputModes: [], taskPushNotificationConfig: undefined, historyLength: undefined, returnImmediately: immediately },
});
const every = async (stream) => { const events = []; for await (const e of stream) events.push(e); return events; };
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const taskOf = (r) => r?.payload?.value ?? r;

async function operations(prefix, client) {
  const run = (name, call) => step((name.startsWith('error ') ? 'error ' : '') + `${prefix}: ${name.replace(/^error /, '')}`, call);
  const task = (id) => ({ tenant: '', id, metadata: undefined, historyLength: undefined });
  const untilWorking = async (id) => {
    for (let i = 0; i < 100; i++) {
      if ((await client.getTask(task(id))).status.state !== TaskState.TASK_STATE_SUBMITTED) return;
      await pause(50);
    }
  };
  const sent = taskOf(await run('send', () => client.sendMessage(request('echo hello \u2028 "x" \u00e9\u{1f600}'))));
  const done = sent?.id ?? 'none';
  await run('send, answered by a message', () => client.sendMessage(request('message hi')));
  await run('send, rejected', () => client.sendMessage(request('reject hi')));
  const asked = taskOf(await run('send, input required', () => client.sendMessage(request('input hi'))));
  if (asked?.id) await run('send, input given', () => client.sendMessage(request('echo more', { taskId: asked.id, contextId: asked.contextId })));
  await run('stream', () => every(client.sendMessageStream(request('chunks hello'))));
  await run('stream, answered by a message', () => every(client.sendMessageStream(request('message hi'))));
  await run('stream, many events', () => every(client.sendMessageStream(request('many hello'))));
  await run('get', () => client.getTask(task(done)));
  if (sent?.contextId) await run('list', () => client.listTasks({
    tenant: '', contextId: sent.contextId, status: TaskState.TASK_STATE_UNSPECIFIED, pageSize: 10, pageToken: '',
    historyLength: undefined, statusTimestampAfter: undefined, includeArtifacts: true,
  }));
  await run('cancel under a stream', async () => {
    const events = []; let cancelled;
    for await (const e of client.sendMessageStream(request('wait hello'))) {
      events.push(e);
      if (events.length === 2) cancelled = await client.cancelTask(task(taskOf(events[0]).id));
    }
    return { events, cancelled };
  });
  await run('cancel', async () => {
    const waiting = taskOf(await client.sendMessage(request('wait hello', { immediately: true })));
    await untilWorking(waiting.id);
    return client.cancelTask(task(waiting.id));
  });
  await run('subscribe', async () => {
    const slow = taskOf(await client.sendMessage(request('slow hello', { immediately: true })));
    await untilWorking(slow.id);
    return every(client.resubscribeTask(task(slow.id)));
  });
  await run('stream left after one event', async () => {
    let first;
    for await (const e of client.sendMessageStream(request('slow hello'))) { first = e; break; }
    for (let i = 0; i < 100; i++) {
      const last = await client.getTask(task(taskOf(first).id));
      if (last.status.state === TaskState.TASK_STATE_COMPLETED) return [first, last];
      await pause(100);
    }
    return 'the task did not go on';
  });
  const hook = { tenant: '', taskId: done, id: 'hook' };
  await run('push create', () => client.createTaskPushNotificationConfig({
    ...hook, url: 'https://hooks.example.com/a?b=c%20d', token: 't\u00f6ken', authentication: { scheme: 'Bearer', credentials: 's3cret' },
  }));
  await run('push get', () => client.getTaskPushNotificationConfig(hook));
  await run('push list', () => client.listTaskPushNotificationConfig({ tenant: '', taskId: done, pageSize: 0, pageToken: '' }));
  await run('push delete', () => client.deleteTaskPushNotificationConfig(hook));
  await run('error push get, deleted', () => client.getTaskPushNotificationConfig(hook));
  await run('get with extensions', () => client.getTask(task(done), { serviceParameters: { 'A2A-Extensions': 'https://example.com/extensions/one,https://example.com/b' } }));
  await run('error get, unknown task', () => client.getTask(task('nope')));
  await run('error cancel, ended task', () => client.cancelTask(task(done)));
  await run('error cancel, unknown task', () => client.cancelTask(task('nope')));
  await run('error send, agent fails', () => client.sendMessage(request('fail hello')));
  await run('error stream, agent fails', () => every(client.sendMessageStream(request('fail hello'))));
  await run('error send, unknown task', () => client.sendMessage(request('echo hello', { taskId: 'nope' })));
  await run('error subscribe, unknown task', () => every(client.resubscribeTask(task('nope'))));
  await run('extended card', () => client.getAgentCard());
}

const legacyCompat = { enabled: true };
const both = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  transports: [new JsonRpcTransportFactory({ legacyCompat })],
  cardResolver: new DefaultAgentCardResolver({ legacyCompat }),
}));
const card = await new DefaultAgentCardResolver({ legacyCompat }).resolve(base + '/');
for (const { url } of card.supportedInterfaces) {
  if (url.replace(/\/$/, '') !== base) {
    console.error(`the card leads to ${url}, not to ${base}`);
    process.exit(1);
  }
}
await step('card', () => card);
await operations('by card', await both.createFromUrl(base + '/'));
// The transport alone, with an interface of our own making.
for (const version of ['1.0', '0.3']) {
  const own = { ...card, supportedInterfaces: [{ url: base, protocolBinding: 'JSONRPC', protocolVersion: version, tenant: '' }] };
  const client = await both.createFromAgentCard(own);
  await step(`transport ${version}: send`, () => client.sendMessage(request('echo direct')));
  await step(`transport ${version}: stream`, () => every(client.sendMessageStream(request('chunks direct'))));
  await step(`error transport ${version}: get, unknown task`, () => client.getTask({ tenant: '', id: 'nope', historyLength: undefined }));
}
printReport();
process.exit(0);
