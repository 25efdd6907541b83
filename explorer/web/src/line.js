// A socket that detects a dead connection, which reports no error itself. The connection
// is dead if the handshake gets no response, or if nothing arrives after a ping.
import { createClient } from 'graphql-ws'
import { patience } from './api.js'

const beat = 5000 // milliseconds between pings, and from a ping until something must have arrived

// line returns a graphql-ws client that does not reconnect automatically, because the new
// connection would not receive the blocks in between.
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
      message: () => overdue && expect(), // on a slow connection, other messages may delay the pong
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
