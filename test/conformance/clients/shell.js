// A new user, who pastes the lines that the program prints into a shell.
import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { end, here, output, serve, start } from '../processes.js'

async function pasted(...args) {
  const server = await serve(...args)
  const [latest, balance, wscat] = server.greeting.filter((line) => /^(curl|npx) /.test(line))

  const { blockchain } = JSON.parse((await output('sh', ['-c', latest], { cwd: here })).stdout).data
  assert.equal(blockchain.blocks.edges.length, 1)
  assert.match(blockchain.blocks.edges[0].node.hash, /^[0-9a-f]{64}$/)

  const account = JSON.parse((await output('sh', ['-c', balance], { cwd: here })).stdout).data.blockchain.account
  assert.match(account.info.balance, /^[1-9][0-9]*$/)

  // The command must run without a prompt, because npx finds the wscat that is installed here.
  const window = start('sh', ['-c', wscat], { cwd: here })
  let number
  let seen = 0
  for await (const line of createInterface({ input: window.stdout })) {
    const { seq_no } = JSON.parse(line).payload.data.blocks
    if (seen++ > 0) assert.equal(seq_no, number + 1)
    number = seq_no
    if (seen === 4) break
  }
  assert.equal(seen, 4, `wscat ended early: ${window.errors}`)
  await end(window)
  await server.stop()
}

export default [
  {
    name: 'sh, the printed lines', phase: 'apart',
    run: async () => {
      await Promise.all([pasted(), pasted('-project', 'demo'), pasted('-project', `shop=it's $HOME "s3cret"`)])
      return 'all lines work: without a project, with a project, and with a secret'
    },
  },
]
