// A WebSocket client that detects a dead connection, for which the browser reports no
// error. The connection counts as dead if the handshake takes too long, or if nothing
// arrives for a while after a ping.
import { createClient } from 'graphql-ws'
import { patience } from './api.js'

const beat = 5000 // milliseconds between two pings, and maximum wait after a ping

// line returns a graphql-ws client for one connection. The client does not reconnect by
// itself, because its subscription would then lack the blocks in between.
export function line({ socket, headers }, connected = () => {}) {
  let overdue
  const content = () => {
    overdue = clearTimeout(overdue)
  }
  const expect = () => {
    content()
    overdue = setTimeout(() => client.terminate(), beat)
  }
  const client = createClient({
    url: socket, connectionParams: headers, retryAttempts: 0, keepAlive: beat, onNonLazyError() {},
    on: {
      connected: () => {
        clearTimeout(opening)
        connected()
      },
      ping: (received) => received || expect(),
      message: () => overdue && expect(), // on a slow connection, many messages may arrive before the pong
      pong: (received) => received && content(),
      closed: () => {
        content()
        clearTimeout(opening)
      },
    },
  })
  const opening = setTimeout(() => client.terminate(), patience)
  return client
}
