// graphql-request: queries with POST and with GET.
import { GraphQLClient } from 'graphql-request'
import { titled } from './package.js'

function adapter(method) {
  return {
    name: `${titled('graphql-request')}, ${method}`,
    protocol: 'HTTP',
    open({ url }, { credentials, fetch }) {
      const client = new GraphQLClient(url, { method, headers: credentials, fetch, jsonSerializer: JSON })
      return { ask: ({ query, variables }) => client.request(query, variables), close() {} }
    },
  }
}

export const adapters = [adapter('POST'), adapter('GET')]
