// Apollo Client, both major versions, with each of its links.
import { createHash } from 'node:crypto'
import { createRequire } from 'node:module'
import { SubscriptionClient } from 'subscriptions-transport-ws'
import Socket from 'ws'
import { client as socketClient } from './graphql-ws.js'
import { titled } from './package.js'
import { into } from './results.js'
import { connect, refusal } from './subscriptions-transport-ws.js'

globalThis.WebSocket ??= Socket // GraphQLWsLink requires the WebSocket of a browser

const require = createRequire(import.meta.url)
const sha256 = (text) => createHash('sha256').update(text).digest('hex')

// ofMajor returns the adapters of one major version. Both versions have the same names for their links.
function ofMajor(folder) {
  const { ApolloClient, gql, HttpLink, InMemoryCache } = require(`${folder}/core`)
  const { createPersistedQueryLink } = require(`${folder}/link/persisted-queries`)
  const { GraphQLWsLink } = require(`${folder}/link/subscriptions`)
  const { WebSocketLink } = require(`${folder}/link/ws`)

  const http = ({ url }, { credentials, fetch }, more) => new HttpLink({ uri: url, headers: credentials, fetch, ...more })
  const persisted = (how) => (place, options) => createPersistedQueryLink({ sha256, ...how }).concat(http(place, options))

  // rest.connect opens the socket of a link and returns a function that closes it.
  function adapter(what, protocol, link, rest) {
    return {
      name: `${titled(folder)}, ${what}`,
      protocol,
      ...rest,
      open(place, options) {
        const { socket, close = () => {} } = rest?.connect?.(place, options) ?? {}
        const listening = new Set() // HttpLink has one response for each subscription
        const client = new ApolloClient({ link: link(place, options, socket), cache: new InMemoryCache(), queryDeduplication: false })
        return {
          async ask({ query, variables }) {
            return (await client.query({ query: gql(query), variables, fetchPolicy: 'network-only' })).data
          },
          listen({ query, variables }, sink) {
            const subscription = client.subscribe({ query: gql(query), variables }).subscribe(into(sink))
            listening.add(subscription)
            return () => subscription.unsubscribe()
          },
          close() {
            for (const subscription of listening) subscription.unsubscribe()
            client.stop()
            close()
          },
        }
      },
    }
  }

  const legacy = (place, options) => {
    const socket = connect(SubscriptionClient, place, options)
    return { socket, close: () => socket.close() }
  }
  const modern = (place, options) => {
    const socket = socketClient(place, options)
    return { socket, close: () => socket.dispose() }
  }
  return [
    adapter('HttpLink', 'HTTP', http, { onCut: 'reports' }), // subscribes by Apollo's multipart protocol
    adapter('HttpLink by GET', 'HTTP', (place, options) => http(place, options, { useGETForQueries: true })),
    adapter('persisted queries', 'HTTP', persisted(), { persisted: 'POST' }),
    adapter('persisted queries by GET', 'HTTP', persisted({ useGETForHashedQueries: true }), { persisted: 'GET' }),
    adapter('WebSocketLink', 'graphql-ws', (place, options, socket) => new WebSocketLink(socket), {
      connect: legacy, onCut: 'repeats', refusal: refusal(SubscriptionClient),
    }),
    adapter('GraphQLWsLink', 'graphql-transport-ws', (place, options, socket) => new GraphQLWsLink(socket), { connect: modern, onCut: 'repeats' }),
  ]
}

export const adapters = ['apollo-client-3', '@apollo/client'].flatMap(ofMajor)
