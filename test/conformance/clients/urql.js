// urql: queries with fetch, subscriptions with fetch (SSE) and with graphql-ws,
// and persisted queries.
import { cacheExchange, Client, fetchExchange, subscriptionExchange } from '@urql/core'
import { persistedExchange } from '@urql/exchange-persisted'
import { client as socketClient } from './graphql-ws.js'
import { titled } from './package.js'
import { into } from './results.js'

function adapter(what, protocol, { exchanges = () => [fetchExchange], ...more }, rest) {
  return {
    name: `${titled('@urql/core')}, ${what}`,
    protocol,
    ...rest,
    open(place, options) {
      const sockets = protocol === 'graphql-transport-ws' ? socketClient(place, options) : undefined
      const client = new Client({
        url: place.url, fetch: options.fetch, fetchOptions: { headers: options.credentials },
        preferGetMethod: false, requestPolicy: 'network-only', ...more,
        exchanges: [cacheExchange, ...exchanges(sockets)],
      })
      return {
        async ask({ query, variables }) {
          const { data, error } = await client.query(query, variables).toPromise()
          if (error) throw error
          return data
        },
        listen({ query, variables }, sink) {
          const { next } = into(sink)
          return client.subscription(query, variables).subscribe(next).unsubscribe
        },
        close: () => sockets?.dispose(),
      }
    },
  }
}

const sockets = (client) => [
  subscriptionExchange({
    enableAllOperations: true,
    forwardSubscription: ({ query, variables }) => ({
      subscribe: (sink) => ({ unsubscribe: client.subscribe({ query, variables }, sink) }),
    }),
  }),
]
const persisted = (how) => () => [persistedExchange(how), fetchExchange]

export const adapters = [
  adapter('fetch', 'SSE', { fetchSubscriptions: true }, { onCut: 'reports' }),
  adapter('fetch by GET', 'HTTP', { preferGetMethod: 'force' }),
  adapter('subscriptionExchange', 'graphql-transport-ws', { exchanges: sockets }, { onCut: 'repeats' }),
  adapter('persisted', 'HTTP', { exchanges: persisted({ preferGetForPersistedQueries: false }) }, { persisted: 'POST' }),
  adapter('persisted by GET', 'HTTP', { exchanges: persisted({ preferGetForPersistedQueries: true }) }, { persisted: 'GET' }),
]
