// A socket that notices when its line is dead, which the line does not say: by the
// handshake that nobody answers, and by pings.
import { createClient } from 'graphql-ws'
import { patience } from './api.js'

const beat = 5000 // between pings, and until a pong is overdue

// line is graphql-ws's client of one connection: it does not begin another by
// itself, which would be without the blocks in between.
export function line({ socket, headers }, connected = () => {}) {
  let overdue
  const client = createClient({
    url: socket, connectionParams: headers, retryAttempts: 0, keepAlive: beat, onNonLazyError() {},
    on: {
      connected: () => {
        clearTimeout(opening)
        connected()
      },
      ping: (received) => {
        if (!received) overdue = setTimeout(() => client.terminate(), beat)
      },
      pong: (received) => received && clearTimeout(overdue),
      closed: () => {
        clearTimeout(overdue)
        clearTimeout(opening)
      },
    },
  })
  const opening = setTimeout(() => client.terminate(), patience)
  return client
}
