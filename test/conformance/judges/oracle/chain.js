// The chain as the server returns it. It is read once, with simple queries, so that
// the reference uses the same data.
import assert from 'node:assert/strict'

// Accounts of the recordings, and one that does not exist.
const accounts = [
  '-1:3333333333333333333333333333333333333333333333333333333333333333',
  '-1:5555555555555555555555555555555555555555555555555555555555555555',
  '-1:0000000000000000000000000000000000000000000000000000000000000000',
  '0:00d1aafe695bc626262425087eb0ed30cea7777b5a034cd81dfb80e1e96f001c',
  '7:00000000000000000000000000000000000000000000000000000000000000ff',
]

export async function readChain(ask, { __schema }) {
  const block = __schema.types.find((type) => type.name === 'BlockchainBlock')
  const leaf = ({ kind, ofType }) => (ofType ? leaf(ofType) : kind === 'SCALAR' || kind === 'ENUM')
  const blockFields = block.fields.filter((field) => field.args.length === 0 && leaf(field.type)).map((field) => field.name).join(' ')
  const blocks = []
  for (let after = ''; ;) {
    const { blockchain } = await ask(`{blockchain{blocks(first:50 after:${JSON.stringify(after)}){edges{node{${blockFields}}}pageInfo{endCursor hasNextPage}}}}`)
    blocks.push(...blockchain.blocks.edges.map((edge) => edge.node))
    if (!blockchain.blocks.pageInfo.hasNextPage) break
    after = blockchain.blocks.pageInfo.endCursor
  }
  const balances = new Map()
  for (const address of accounts) {
    const { blockchain } = await ask(`{blockchain{account(address:"${address}"){info{balance(format:DEC)}}}}`)
    balances.set(address, BigInt(blockchain.account.info.balance))
  }
  const { info } = await ask('{info{version endpoints lastBlockTime}}')
  const again = await ask('{blockchain{blocks(last:1){edges{cursor}}}}')
  assert.equal(again.blockchain.blocks.edges[0]?.cursor, blocks.at(-1)?.chain_order, 'the chain has grown, but must not')
  return { blocks, balances, info }
}

// parseAddress parses an address in either form. It returns null if the text is not an address.
export function parseAddress(text) {
  const raw = /^(0|-?[1-9][0-9]{0,9}):([0-9a-f]{64})$/i.exec(text)
  if (raw) return Number(raw[1]) === (raw[1] | 0) ? text.toLowerCase() : null
  if (!/^([A-Za-z0-9+/]{48}|[A-Za-z0-9_-]{48})$/.test(text)) return null
  const bytes = Buffer.from(text, 'base64')
  if (![0x11, 0x51].includes(bytes[0] & 0x7f) || crc16(bytes.subarray(0, 34)) !== bytes.readUInt16BE(34)) return null
  return `${bytes.readInt8(1)}:${bytes.toString('hex', 2, 34)}`
}

// friendly returns the user-friendly form of a raw address.
export function friendly(address, encoding = 'base64url', tag = 0x11) {
  const [workchain, id] = address.split(':')
  const bytes = Buffer.alloc(36)
  bytes.writeUInt8(tag, 0)
  bytes.writeInt8(Number(workchain), 1)
  bytes.write(id, 2, 'hex')
  bytes.writeUInt16BE(crc16(bytes.subarray(0, 34)), 34)
  return bytes.toString(encoding)
}

function crc16(bytes) {
  let crc = 0
  for (const byte of bytes) {
    crc ^= byte << 8
    for (let i = 0; i < 8; i++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1
  }
  return crc & 0xffff
}
