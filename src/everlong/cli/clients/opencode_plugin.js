// Everlong's hooks for opencode: a session is stored when it rests and before it is compacted, and a new one is told
// where the folder's last conversation stands. `everlong setup opencode --hooks --undo` removes this file.
import { spawn } from "node:child_process"

const COMMAND = ["everlong", "hook", "opencode"]
const SECONDS = 60

// Call Everlong; whatever goes wrong there, opencode goes on.
function call(payload) {
  return new Promise((resolve) => {
    let told = ""
    const child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "pipe", "ignore"] })
    const timer = setTimeout(() => child.kill(), SECONDS * 1000)
    const end = (text) => {
      clearTimeout(timer)
      resolve(text)
    }
    child.on("error", () => end(""))
    child.on("close", (code) => end(code === 0 ? told.trim() : ""))
    child.stdout.on("data", (data) => (told += data))
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify(payload))
  })
}

export const Everlong = async ({ client, directory }) => {
  const seen = new Set()
  let last = Promise.resolve("")

  async function read(id) {
    const [session, messages] = await Promise.all([
      client.session.get({ path: { id } }),
      client.session.messages({ path: { id } }),
    ])
    return { session: { directory, ...session.data }, messages: messages.data ?? [] }
  }

  // One call at a time: two of them would store the same session at the same moment.
  function store(event, id) {
    last = last.then(async () => call({ event, ...(await read(id)) })).catch(() => "")
    return last
  }

  return {
    event: async ({ event }) => {
      if (event.type === "session.idle") await store("session.idle", event.properties.sessionID)
    },
    "experimental.session.compacting": async (input, output) => {
      const text = await store("session.compacting", input.sessionID)
      if (text) output.context.push(text)
    },
    "chat.message": async (input, output) => {
      const id = input.sessionID
      if (seen.has(id)) return
      seen.add(id)
      try {
        const { session, messages } = await read(id)
        if (session.parentID || messages.some((one) => one.info.role === "assistant")) return
        const text = await call({ event: "session.start", session })
        const first = output.parts[0]
        if (!text || !first) return
        // A part of the first message, so that it is the same in every later request and the cache holds.
        const part = { ...first, id: `${first.id}e`, type: "text", text, synthetic: true }
        for (const name of Object.keys(part)) {
          if (!["id", "sessionID", "messageID", "type", "text", "synthetic"].includes(name)) delete part[name]
        }
        output.parts.push(part)
      } catch {
        // opencode goes on without it
      }
    },
  }
}
