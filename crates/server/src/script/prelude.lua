-- The sandbox: what scripts see of Lua, and nothing else.
--
-- Scripts run in the environment `env`, a proxy of the table `globals`. Proxies are empty, so every
-- assignment meets __newindex and fails. Reads go to the table behind. Errors of the host's functions
-- are objects; those who catch errors get what `host.plain` makes of them.

local host = ...
local error, type, tostring, select, next = error, type, tostring, select, next
local raw_pcall, raw_xpcall, raw_pairs = pcall, xpcall, pairs
local raw_rawget, raw_rawset, raw_setmetatable = rawget, rawset, setmetatable
local raw_loadstring, raw_setfenv, concat, byte = loadstring, setfenv, table.concat, string.byte

local READONLY = "Attempt to modify a readonly table"
local real_tables = raw_setmetatable({}, { __mode = "k" })

local function refuse()
  error(READONLY, 2)
end

local sealed

local function protect(real)
  local proxy = {}
  real_tables[proxy] = real
  return raw_setmetatable(proxy, { __index = real, __newindex = refuse, __metatable = sealed })
end

sealed = protect({})
sealed = protect({})

local globals = {}
local env = protect(globals)

for _, name in raw_pairs({
  "assert", "collectgarbage", "error", "gcinfo", "getmetatable", "ipairs", "next", "rawequal",
  "select", "tonumber", "tostring", "type", "unpack", "_VERSION",
}) do
  globals[name] = _G[name]
end

function globals.pairs(t)
  local real = real_tables[t]
  if real then
    -- A copy: the table behind must not be handed out.
    t = {}
    for key, value in next, real do
      t[key] = value
    end
  end
  return raw_pairs(t)
end

function globals.rawget(t, key)
  return raw_rawget(real_tables[t] or t, key)
end

function globals.rawset(t, key, value)
  if real_tables[t] then
    error(READONLY, 0)
  end
  return raw_rawset(t, key, value)
end

function globals.setmetatable(t, meta)
  if real_tables[t] then
    error(READONLY, 0)
  end
  return raw_setmetatable(t, meta)
end

-- As in Redis, an error of a command is a string for those who catch it.
local function flatten(ok, ...)
  if ok then
    return true, ...
  end
  local failure = host.plain(...)
  if type(failure) == "table" and type(raw_rawget(failure, "err")) == "string" then
    return false, failure.err
  end
  return false, failure
end

function globals.pcall(...)
  if select("#", ...) == 0 then
    return raw_pcall()
  end
  return flatten(raw_pcall(...))
end

function globals.xpcall(f, handler)
  return raw_xpcall(f, function(failure)
    return handler(host.plain(failure))
  end)
end

local raw_coroutine = coroutine
local coroutine = {}
for name, value in raw_pairs(raw_coroutine) do
  coroutine[name] = value
end

function coroutine.resume(...)
  return flatten(raw_coroutine.resume(...))
end

-- Compiled code could break the memory safety of the interpreter, so only text is loaded.
function globals.loadstring(text, name)
  if type(text) == "number" then
    text = tostring(text)
  end
  if type(text) ~= "string" then
    error("bad argument #1 to 'loadstring' (string expected, got " .. type(text) .. ")", 2)
  end
  if byte(text, 1) == 27 then
    return nil, "attempt to load chunk with wrong mode"
  end
  local loaded, message = raw_loadstring(text, name or text)
  if loaded then
    raw_setfenv(loaded, env)
  end
  return loaded, message
end

function globals.load(reader, name)
  local pieces = {}
  while true do
    local piece = reader()
    if piece == nil or piece == "" then
      break
    end
    pieces[#pieces + 1] = piece
  end
  return globals.loadstring(concat(pieces), name or "=(load)")
end

-- The matcher recurses per item of the pattern, so its length bounds the stack.
local MAX_PATTERN_BYTES = 4096
for _, name in raw_pairs({ "find", "match", "gmatch", "gfind", "gsub" }) do
  local raw = string[name]
  if raw then
    string[name] = function(text, pattern, ...)
      if type(pattern) == "string" and #pattern > MAX_PATTERN_BYTES then
        error("pattern too complex", 2)
      end
      return raw(text, pattern, ...)
    end
  end
end

globals._G = env
globals.coroutine = protect(coroutine)
globals.math = protect(math)
globals.string = protect(string)
globals.table = protect(table)
globals.os = protect({ clock = host.clock })
getmetatable("").__metatable = sealed

globals.redis = protect(host.redis)
for name, library in raw_pairs(host.libraries) do
  globals[name] = protect(library)
end

local missing = {
  __index = function(_, name)
    local text = "Script attempted to access nonexistent global variable '" .. tostring(name) .. "'"
    error(text, 2)
  end,
}
raw_setmetatable(globals, missing)

-- Libraries have an environment of their own. While its code runs, a library sees as little as in
-- Redis, so that one which works here works there; its functions see all when they are called.
local loadable = raw_setmetatable({}, missing)
local loading = raw_setmetatable({ redis = protect(loadable) }, missing)
local library_env, library_meta = {}, { __newindex = refuse, __metatable = sealed }
library_meta.__index = globals
raw_setmetatable(library_env, library_meta)
real_tables[library_env] = globals

local function set_loading(is_loading)
  library_meta.__index = is_loading and loading or globals
  real_tables[library_env] = library_meta.__index
  for name, value in next, host.redis do
    if name == "register_function" or name == "log" or type(value) ~= "function" then
      raw_rawset(loadable, name, value)
    end
  end
end

-- A script has its keys and arguments as globals, a function as arguments.
local function run(script, keys, args, is_function)
  if is_function then
    globals.KEYS, globals.ARGV = nil, nil
    return raw_xpcall(function()
      return script(keys, args)
    end, host.on_error)
  end
  globals.KEYS, globals.ARGV = keys, args
  return raw_xpcall(script, host.on_error)
end

return env, run, library_env, set_loading
