// Prints an account's balance, if one is named, then each new masterchain block.
//
//     npm run follow -- http://127.0.0.1:8080 demo [address] [secret]
import WebSocket from 'ws'
import { Chain } from './chain.js'

/** ws would wait for a handshake for ever. */
class Socket extends WebSocket {
  constructor(url: string, protocols: string[]) {
    super(url, protocols, { handshakeTimeout: 10_000 })
  }
}

const [service = 'http://127.0.0.1:8080', project = 'demo', address, secret] = process.argv.slice(2)
const chain = new Chain({ service, project, secret, webSocket: Socket })

if (address !== undefined) console.log(`${await chain.balance(address)} nano`)
const after = await chain.newest() // or the chain_order of the last block seen, kept from before
for await (const { seq_no, id } of chain.blocks(after, { workchain_id: { eq: -1 } })) {
  console.log(seq_no, id)
}
