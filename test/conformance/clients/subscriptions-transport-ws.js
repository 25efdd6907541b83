// subscriptions-transport-ws: the client that defines the protocol graphql-ws.
import assert from 'node:assert/strict'
import * as latest from 'subscriptions-transport-ws'
import * as nine from 'subscriptions-transport-ws-0.9'
import Socket from 'ws'
import { blocks } from '../documents.js'
import { Listener } from '../listener.js'
import { serve } from '../processes.js'
import { titled } from './package.js'
import { into, once } from './results.js'
import { recordFrames } from './websocket.js'

// connect creates a client. Other clients that are based on this client use it, too.
export function connect(SubscriptionClient, { socket }, { credentials, WebSocket = Socket, retry = true }, connectionCallback) {
  const minTimeout = 20_000 // the default of one second is too short when all clients start at the same time
  return new SubscriptionClient(socket, { reconnect: retry, connectionParams: credentials, connectionCallback, minTimeout }, WebSocket)
}

// refusal returns the error of a refused connection, which the operations do not report.
export function refusal(SubscriptionClient) {
  return (place, options) => new Promise((resolve) => {
    const client = connect(SubscriptionClient, place, options, (err) => {
      client.close()
      resolve(err)
    })
  })
}

function adapter(folder, { SubscriptionClient }) {
  return {
    name: titled(folder),
    protocol: 'graphql-ws',
    onCut: 'repeats',
    refusal: refusal(SubscriptionClient),
    open(place, options) {
      const client = connect(SubscriptionClient, place, options)
      const listen = (operation, sink) => {
        const subscription = client.request(operation).subscribe(into(sink))
        return () => subscription.unsubscribe()
      }
      return { listen, ask: (operation) => once((sink) => listen(operation, sink)), close: () => client.close() }
    },
  }
}

export const adapters = [adapter('subscriptions-transport-ws-0.9', nine), adapter('subscriptions-transport-ws', latest)]

const [, newest] = adapters

export const cases = [
  {
    name: `${newest.name}, all workchains`, phase: 'live',
    async run({ server, chain }) {
      const line = newest.open(server, {})
      const result = chain.check(await new Listener(line, { query: blocks }).upTo(chain.few))
      line.close()
      return result
    },
  },
  {
    name: `${newest.name}, shutdown`, phase: 'apart',
    async run() {
      const frames = []
      const server = await serve()
      const line = newest.open(server, { WebSocket: recordFrames(frames), retry: false })
      await new Listener(line, { query: blocks }).upTo(2)
      await server.stop()
      line.close()
      const { type, payload } = frames.at(-1)
      assert.equal(type, 'connection_error', 'the server sent no connection_error before it closed the socket')
      return `the server sent "${payload.message}"`
    },
  },
]
