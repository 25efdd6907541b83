// graphql-ws: the client that defines the protocol graphql-transport-ws.
import * as latest from 'graphql-ws'
import * as five from 'graphql-ws-5'
import Socket from 'ws'
import { titled } from './package.js'
import { into, once } from './results.js'

// client creates a graphql-ws client. Other clients also use it for their subscriptions.
export function client({ socket }, { credentials, WebSocket = Socket, retry = true }, { createClient } = latest) {
  return createClient({
    url: socket, webSocketImpl: WebSocket, connectionParams: credentials,
    keepAlive: 500, // milliseconds between its pings
    retryAttempts: retry ? 5 : 0,
  })
}

function adapter(folder, library) {
  return {
    name: titled(folder),
    protocol: 'graphql-transport-ws',
    onCut: 'repeats',
    open(place, options) {
      const made = client(place, options, library)
      const listen = (operation, sink) => made.subscribe(operation, into(sink))
      return { listen, ask: (operation) => once((sink) => listen(operation, sink)), close: () => made.dispose() }
    },
  }
}

export const adapters = [adapter('graphql-ws-5', five), adapter('graphql-ws', latest)]
