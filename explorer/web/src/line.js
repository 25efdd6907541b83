// A socket that notices when its line is dead, which the line does not say: by the
// handshake that nobody answers, and by a ping behind which nothing comes.
import { createClient } from 'graphql-ws'
import { patience } from './api.js'

const beat = 5000 // between pings, and behind one until something is overdue

// line is graphql-ws's client of one connection: it does not begin another by
// itself, which would be without the blocks in between.
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
      message: () => overdue && expect(), // on a slow line a pong is long behind what else is on its way
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
