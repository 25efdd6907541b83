// Serves a copy of the chain with mercurius or graphql-yoga.
//
//	node server.js mercurius|yoga schema.graphql chain.json
//
// The program removes chain.json and prints its address. It replies to each
// line of its standard input with its resource usage.
import { createServer } from 'node:http'
import { readFileSync, unlinkSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { resolvers } from './resolvers.js'

const [peer, schemaFile, chainFile] = process.argv.slice(2)
const schema = readFileSync(schemaFile, 'utf8')
const chain = JSON.parse(readFileSync(chainFile, 'utf8'))
unlinkSync(chainFile)

const path = '/demo/graphql'
const port = await { mercurius: serveMercurius, yoga: serveYoga }[peer](resolvers(chain))
console.log(JSON.stringify(`127.0.0.1:${port}`))

async function serveMercurius(resolvers) {
  const { default: Fastify } = await import('fastify')
  const { default: mercurius } = await import('mercurius')
  const app = Fastify()
  app.register(mercurius, { schema, resolvers, path, jit: 1 })
  await app.listen({ host: '127.0.0.1', port: 0 })
  return app.server.address().port
}

async function serveYoga(resolvers) {
  const { createSchema, createYoga } = await import('graphql-yoga')
  const yoga = createYoga({ schema: createSchema({ typeDefs: schema, resolvers }), graphqlEndpoint: path, logging: false })
  const server = createServer(yoga)
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return server.address().port
}

const lines = createInterface({ input: process.stdin })
lines.on('line', () => {
  const { user, system } = process.cpuUsage()
  console.log(JSON.stringify({ CPU: (user + system) * 1000, RSS: process.memoryUsage.rss(), At: Date.now() * 1e6 }))
})
lines.on('close', () => process.exit())
