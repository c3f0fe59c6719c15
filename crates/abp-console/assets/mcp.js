// @ts-check
// The operator's MCP servers as one: what was negotiated with this client, and the tools.

import { html, AgentText, AgentValue, Commands, Empty, Loaded, Problem, useLoaded, useState } from './ui.js';
import { ApiError, getJson, readEvents, send } from './api.js';

const VERSION = '2025-06-18';

/** One JSON-RPC request to the MCP endpoint. @param {string} method @param {any} params @param {string} session @returns {Promise<{result: any, session: string}>} */
async function call(method, params, session) {
  /** @type {Record<string, string>} */
  const headers = session ? { 'mcp-session-id': session, 'mcp-protocol-version': VERSION } : {};
  const isNote = method.startsWith('notifications/');
  const body = isNote ? { jsonrpc: '2.0', method } : { jsonrpc: '2.0', id: 1, method, params };
  const response = await send('/mcp/gateway', { method: 'POST', body, headers, accept: 'application/json, text/event-stream' });
  const next = response.headers.get('mcp-session-id') ?? session;
  if (isNote) return { result: null, session: next };
  /** @type {any} */
  let answer = null;
  if (response.headers.get('content-type')?.startsWith('text/event-stream') && response.body) {
    await readEvents(response.body, (events) => {
      for (const event of events) {
        const message = JSON.parse(event.data);
        if (message.id === 1) answer = message;
      }
    });
  } else {
    answer = await response.json();
  }
  if (answer?.error) throw new ApiError('failed', answer.error.message ?? 'the server refused');
  return { result: answer?.result, session: next };
}

async function negotiate() {
  const hello = await call('initialize', { protocolVersion: VERSION, capabilities: {}, clientInfo: { name: 'abp-console', version: '1' } }, '');
  await call('notifications/initialized', {}, hello.session);
  const tools = hello.result?.capabilities?.tools ? await call('tools/list', {}, hello.session) : { result: { tools: [] } };
  if (hello.session) send('/mcp/gateway', { method: 'DELETE', headers: { 'mcp-session-id': hello.session } }).catch(() => {});
  return { hello: hello.result, tools: tools.result?.tools ?? [] };
}

export function McpPage() {
  const config = useLoaded(() => getJson('/v1/config'), []);
  const servers = Object.entries(config.data?.config?.mcp?.servers ?? {});
  return html`<section>
    <div class="head"><h1>MCP</h1><span class="grow"></span><${Commands} abp="abp mcp gateway" path="/mcp/gateway" body=${{ jsonrpc: '2.0', id: 1, method: 'tools/list' }} /></div>
    <${Loaded} of=${config} what="the MCP servers">
      ${servers.length === 0 ? html`<${Empty} title="No MCP server is configured"><p>Servers under <code>[mcp.servers]</code> are offered as one at <code>/mcp/gateway</code>; the backplane's own tools are at <code>/mcp</code>.</p><//>` : html`
        <div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows"><thead><tr><th>server</th><th>how</th><th>settings</th></tr></thead><tbody>${servers.map(([name, server]) => html`<tr><td>${name}</td><td><code>${/** @type {any} */ (server).command ?? /** @type {any} */ (server).url ?? '–'}</code></td><td class="main dim"><${AgentText} text=${JSON.stringify(server)} step=${300} /></td></tr>`)}</tbody></table></div>
        <${Tools} />`}
    <//>
  </section>`;
}

/** @typedef {{name: string, description?: string, inputSchema?: any, annotations?: any}} Tool */

function Tools() {
  const loaded = useLoaded(negotiate, []);
  const [open, setOpen] = useState('');
  if (loaded.error) return html`<${Problem} error=${loaded.error} what="the tools" retry=${loaded.reload} />`;
  const hello = loaded.data?.hello;
  return html`<${Loaded} of=${loaded} what="the tools">${hello && html`
    <div class="head sub"><h2>Negotiated with this client</h2></div>
    <dl class="facts part"><dt>protocol</dt><dd>${hello.protocolVersion}</dd><dt>server</dt><dd>${hello.serverInfo?.name} ${hello.serverInfo?.version}</dd><dt>flags</dt><dd>${Object.keys(hello.capabilities ?? {}).join(', ') || 'none'}</dd></dl>
    <div class="head sub"><h2>${loaded.data.tools.length} tools</h2></div>
    <div class="scroll-x" tabindex="0" role="region" aria-label="table"><table class="rows"><thead><tr><th>tool</th><th>description</th></tr></thead><tbody>${loaded.data.tools.map((/** @type {Tool} */ tool) => html`<tr><td><button class="fold-title" aria-expanded=${open === tool.name} onClick=${() => setOpen(open === tool.name ? '' : tool.name)}><code><${AgentText} text=${tool.name} /></code></button></td><td class="main"><${AgentText} text=${tool.description ?? ''} step=${200} />${open === tool.name && html`<${AgentValue} value=${tool.inputSchema} />`}</td></tr>`)}</tbody></table></div>`}<//>`;
}
