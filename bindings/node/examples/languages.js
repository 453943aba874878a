'use strict'

// Counts visits by language, and prints all counts: the program of the book's page "Other
// languages".

// ANCHOR: program
const { SiltstoneLevel } = require('..')

async function visit (location) {
  const visits = new SiltstoneLevel(location, { table: 'visits' })
  try {
    // One process has the store open, and this is its only writer: no transaction is needed.
    const count = Number(await visits.get('node') || 0) + 1
    await visits.put('node', String(count))
    for await (const [language, count] of visits.iterator()) {
      console.log(`${language} ${count}`)
    }
  } finally {
    await visits.close()
  }
}

visit(process.argv[2] || '/tmp/visits')
// ANCHOR_END: program
