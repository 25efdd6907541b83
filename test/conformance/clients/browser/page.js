// The code of the page. It calls fetch, and runs one subscription at a time, with
// one of the clients that work in browsers.
let heard
let leave

function show(selector, tag, text) {
  document.querySelector(selector).appendChild(document.createElement(tag)).innerHTML = text
}

// A Sink stores what one subscription receives.
class Sink {
  heard = { blocks: [], ids: [], opened: 0, trouble: undefined }

  next = ({ data, errors }) => {
    if (errors) return this.error(errors[0])
    this.heard.blocks.push(data.blocks ?? data)
    const { seq_no, chain_order, id } = data.blocks ?? {}
    show('table', 'tr', [seq_no, chain_order, id].map((value) => `<td>${value}`).join(''))
  }

  error = (err) => {
    this.heard.trouble ??= 'reason' in err ? `${err.code} ${err.reason}` : err.message ?? err.type
  }

  complete = () => this.error(new Error('complete'))
}

const ways = {
  'subscriptions-transport-ws'({ socket, credentials, operation }, sink) {
    const client = new SubscriptionsTransportWs.SubscriptionClient(socket, {
      connectionParams: credentials,
      minTimeout: 20_000, // its default of one second is too short if other cases run in parallel
      connectionCallback: (err) => err && sink.error(err),
    })
    client.onDisconnected(() => sink.error(new Error('disconnected')))
    client.request(operation).subscribe(sink)
    return () => client.close()
  },
  'graphql-ws'({ socket, credentials, operation }, sink) {
    const client = graphqlWs.createClient({ url: socket, connectionParams: credentials, retryAttempts: 0 })
    client.subscribe(operation, sink)
    return () => client.dispose()
  },
  'graphql-sse'({ url, credentials, operation }, sink) {
    const client = graphqlSse.createClient({ url, headers: credentials, retryAttempts: 0 })
    client.subscribe(operation, sink)
    return () => client.dispose()
  },
  EventSource({ url, operation: { query } }, sink) {
    const source = new EventSource(`${url}?${new URLSearchParams({ query })}`)
    source.onopen = () => sink.heard.opened++
    source.addEventListener('next', ({ data, lastEventId }) => {
      sink.heard.ids.push(lastEventId)
      sink.next(JSON.parse(data))
    })
    source.addEventListener('complete', () => {
      source.close() // it would reconnect otherwise
      sink.complete()
    })
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) sink.error(new Error('error event')) // in other states it reconnects
    }
    return () => source.close()
  },
}

function listen(way, options) {
  leave?.()
  document.querySelector('p').textContent = `received with ${way} by ${location.origin}`
  document.querySelector('table').replaceChildren()
  const sink = new Sink()
  heard = sink.heard
  leave = ways[way](options, sink)
}

async function ask(url, init) {
  try {
    const response = await fetch(url, init)
    return { status: response.status, body: await response.json() }
  } catch (err) {
    return { blocked: err.message }
  }
}
