-- Scripts, one a line, that have the same reply on Redis 7.0.
redis.call("set","s","1") return redis.call("lpush","s","1")
return redis.call("lpush","s")
return redis.pcall("lpush","s","1")
local e=redis.pcall("lpush","s","1") return e.err.."/"..tostring(e.source).."/"..tostring(e.line).."/"..tostring(e.ignore_error_stats_update)
local ok,e=pcall(redis.call,"lpush","s","1") return type(e).." "..cjson.encode(e)
local ok,e=pcall(redis.call,"nosuch") return type(e).." "..cjson.encode(e)
local e=redis.pcall("nosuch") return type(e).." "..cjson.encode(e)
return redis.sha1hex()
return redis.sha1hex("")
redis.log(1)
redis.log(9,"x")
redis.log("a","x")
redis.setresp(4)
redis.setresp()
return {1,2.7,"a",true,false,{1,nil,3},{ok="fine"}}
return redis.status_reply("OK")
return redis.status_reply()
return redis.error_reply()
a +
return redis.set_repl(redis.REPL_ALL)
return redis.set_repl(9)
return redis.replicate_commands()
return cjson.decode("x")
rawset(_G,"a",1)
math.abs=1
return loadstring("return 1")()
return redis.call("client","list")
return redis.call("subscribe","x")
return redis.call("multi")
return redis.call("get")
return redis.call("config","get","save")
return redis.call("script","flush")
return redis.call("ping")
return redis.call("select",30)
return redis.call("select",1)
redis.call("set","a",1.5) return redis.call("get","a")
redis.call("set","a",12345678901234567) return redis.call("get","a")
redis.call("set","a",1e100) return redis.call("get","a")
redis.call("set","a",-0) return redis.call("get","a")
return 3.99
return -3.99
return 1e20
return nil
return pcall
return {double=3.5}
return {map={a=1}}
return {big_number="123"}
local t={} t.a=t return cjson.encode(t)
return #KEYS
return tostring(string.dump(function() end) ~= nil)
return tostring(loadstring("a +"))
return select(2,loadstring("a +"))
return redis.call("zscore","nz","a")
return type(redis.call("get","nz"))
error()
return error("a",2)
local t=nil; return t.x
return redis.pcall("incr","s","x")["err"]
return {err="My Err"}
return {err={}}
return {ok=1}
return cmsgpack.unpack("")
return bit.band()
return bit.band("x")
return struct.pack("z")
return struct.pack(">I2h",1,-1)
return 1,2
return "a\r\nb"
return {ok="a\r\nb"}
error("line1\nline2")
return redis.register_function("a",function() end)
return redis.call("info","nothing")
return redis.call("command","count")>1
return cjson.encode({1,2,3,{a=1},"x",1.5,1e100,12345678901234567,0.1,true,cjson.null})
return cjson.encode({[1]=1,[3]=3})
return cjson.encode({[1]=1,[100]=3})
return cjson.encode({})
return cjson.encode("a/b\"\\\n\1\127\255")
return cjson.encode({[true]=1})
return cjson.encode(redis.call)
return cjson.encode(0/0)
return cjson.encode({1/0})
return cjson.encode({[1.5]=1})
return type(cjson.decode("null"))
return cjson.decode("[1,2,{\"a\":[]}]")[3].a
return tostring(cjson.decode("[1e3,-0,0x1F]")[3])
return cjson.decode("[1,]")
return cjson.decode("{\"a\" 1}")
return cjson.decode("")
return cjson.decode("[1] x")
return cjson.decode("\"abc")
return cjson.decode("\"\\u00e9\\ud83d\\ude00\"")
return cjson.decode("\"\\q\"")
return cjson.decode("nan")
return cjson.decode(string.rep("[",1001)..string.rep("]",1001))
return cjson.encode_max_depth()
return cjson.decode_max_depth()
return {cjson.encode_sparse_array()}
return cjson.encode_number_precision()
return cjson.encode_keep_buffer()
return cjson.encode_invalid_numbers()
return tostring(cjson.decode_invalid_numbers())
return cjson.encode()
return cjson.encode(1,2)
return cjson.decode(1)
return cjson.decode({})
return cmsgpack.pack({1,2,"a",{a=1},true,1.5,-1,300,70000,2^40,-200,-40000,-2^40})
return cmsgpack.unpack(cmsgpack.pack({1,2,3}))
return {cmsgpack.unpack_one(cmsgpack.pack(1,2,3))}
return {cmsgpack.unpack_one(cmsgpack.pack(1,2,3),2)}
return {cmsgpack.unpack_limit(cmsgpack.pack(1,2,3),2)}
return {cmsgpack.unpack_limit(cmsgpack.pack(1,2,3),2,1)}
return {cmsgpack.unpack_limit(cmsgpack.pack(1,2,3),0,0)}
return {cmsgpack.unpack_limit(cmsgpack.pack(1,2,3),0,1)}
return {cmsgpack.unpack_limit(cmsgpack.pack(1,2,3))}
return {cmsgpack.unpack_limit(cmsgpack.pack(1,2,3),-1,0)}
return {cmsgpack.unpack_one(cmsgpack.pack(1,2,3),-1)}
return cmsgpack.unpack("\x92\x01")
return cmsgpack.unpack("\xc1")
return cmsgpack.pack()
return cmsgpack.unpack_one("a",10)
return {bit.tobit(0xffffffff),bit.bnot(0),bit.band(15,7,3),bit.bor(1,2,4),bit.bxor(5,1),bit.lshift(1,31),bit.rshift(-1,28),bit.arshift(-16,2),bit.rol(0x12345678,12),bit.ror(0x12345678,12),bit.bswap(0x12345678),bit.tohex(255),bit.tohex(255,4),bit.tohex(255,-4)}
return {struct.unpack("<i4bHL",struct.pack("<i4bHL",-5,-1,65535,77))}
return {struct.unpack("s",struct.pack("s","abc"))}
return {struct.unpack("c3",struct.pack("c3","abcdef"))}
return {struct.unpack("Bc0",struct.pack("Bc0",3,"abc"))}
return {struct.size("i4h!8d"),struct.size(">!4bi4"),struct.size("d")}
return struct.size("s")
return struct.unpack("i4","ab")
return struct.unpack("b","a",0/0)
return struct.pack("i33",1)
return tostring(struct.unpack("d",struct.pack("d",1.5)))
return tostring(struct.unpack("f",struct.pack("f",1.5)))
return tostring(getfenv)
return string.format("%d %s %5.1f %q",3,"a",2.5,"x")
return table.concat({1,2,3},",")
return tostring({} == {})
return _VERSION
return string.rep("x",-1)
local co=coroutine.wrap(function() coroutine.yield(redis.call("ping")) end) return co()
return tonumber("0x10")
return xpcall(function() error("a") end, function(e) return e end)
return {xpcall(function() error("a") end, function(e) return "h:"..e end)}
return {pcall(error,"a")}
return {pcall(function() error({a=1}) end)}
return {1,{2,{3,{4}}}}
return {[1]="a",[2]=nil,[3]="c"}
return {pcall(function() return redis.call("incr","a","b") end)}
return redis.pcall("get")
return redis.pcall()
return redis.call("set","k",{})
return redis.call("set","k",true)
return redis.call("set","k",nil)
return redis.call(1)
return redis.call("GET","a","b")
return string.gsub("hello","l","L")
return redis.call("object","encoding","a")
return redis.call("lpop","a","b","c")
return redis.call("set","a","b","nx","xx")
return redis.REPL_ALL
return redis.call("eval_ro","return 1",0)
return redis.call("publish","a","b")
return redis.call("unwatch")
return redis.call("debug","object","a")
return redis.call("flushall")
return redis.call("randomkey")
return redis.call("latency","reset")
return redis.call("role")
return redis.call("save")
return redis.call("echo","x")
return redis.call("auth","x")
return redis.call("pubsub","numpat")
return redis.call("dbsize")
return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], #KEYS, #ARGV}
redis.setresp(3) return true
redis.setresp(3) return {false, 1}
redis.setresp(3) redis.call('hset', KEYS[1]..'h', 'f', 'v') return redis.call('hgetall', KEYS[1]..'h')
redis.setresp(3) redis.call('sadd', KEYS[1]..'s', 'm') return redis.call('smembers', KEYS[1]..'s')
redis.setresp(3) redis.call('zadd', KEYS[1]..'z', 1.5, 'm') return redis.call('zscore', KEYS[1]..'z', 'm')
redis.setresp(3) return redis.call('get', 'nokey')
redis.setresp(3) return type(redis.call('get', 'nokey'))
return {double=2.5}
return {map={a=1}}
return {set={a=true}}
return {big_number='12345678901234567890'}
return {verbatim_string={format='txt', string='abc'}}
return redis.call('zrange', KEYS[1]..'z', 0, -1, 'withscores')
return {1, {err='ERR inner'}, {ok='fine'}}
local t = {} for i = 1, 10 do t[i] = redis.call('rpush', KEYS[1]..'l', i) end return t
return redis.call('lrange', KEYS[1]..'l', 2, 4)
return redis.call('mget', 'x', KEYS[1]..'n', 'y')
return cjson.encode(redis.call('lrange', KEYS[1]..'l', 0, -1))
return cjson.decode('{"a": [1, {"b": null}], "c": "\\u0041"}').c
return struct.pack('>I4 <h !4 b i', 1, 2, 3, 4)
return {struct.unpack('>I4 <h b', struct.pack('>I4 <h b', 4294967295, -2, -1))}
return cmsgpack.unpack(cmsgpack.pack({a={1, 2}, b='x'})).b
return cmsgpack.pack({1, {2, {}}, -33, 128, 255, 256, 65536, 4294967296, -129, -32769, 0.5, 0.1, string.rep('x', 40)})
return bit.tohex(bit.bxor(0xdeadbeef, 0x12345678))
return tostring(1e15) .. ' ' .. tostring(0.1) .. ' ' .. tostring(-1/0)
