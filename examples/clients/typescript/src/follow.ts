// Prints the balance of an account, if one is given, and then each new masterchain block.
//
//     npm run follow -- http://127.0.0.1:8080 demo [address] [secret]
import WebSocket from 'ws'
import { Chain } from './chain.js'

/** A WebSocket with a timeout for the handshake. Without it, ws would wait forever. */
class Socket extends WebSocket {
  constructor(url: string, protocols: string[]) {
    super(url, protocols, { handshakeTimeout: 10_000 })
  }
}

const [service = 'http://127.0.0.1:8080', project = 'demo', address, secret] = process.argv.slice(2)
const chain = new Chain({ service, project, secret, webSocket: Socket })

if (address !== undefined) console.log(`${await chain.balance(address)} nano`)
const after = await chain.newest() // or the stored cursor of the last processed block
for await (const { seq_no, id } of chain.blocks(after, { workchain_id: { eq: -1 } })) {
  console.log(seq_no, id)
}
