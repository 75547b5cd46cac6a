import static java.nio.charset.StandardCharsets.UTF_8;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.LongAccumulator;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.LongPredicate;
import java.util.stream.Stream;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;

/**
 * A Redisson client on a string: the tests start it as a child process and work its locks over stdin and stdout.
 *
 * <pre>
 * java -jar driver.jar &lt;address&gt;[,&lt;address&gt;…] [cluster] [watchdog=&lt;ms&gt;] [fair-wait=&lt;ms&gt;]
 *
 *   address     redis://host:port; several only with `cluster`
 *   cluster     talk to a Redis Cluster
 *   watchdog    lockWatchdogTimeout: the lease of a lock taken without one, renewed at a third of it (30000)
 *   fair-wait   fairLockWaitTimeout: the patience of a fair waiter without a deadline (300000); no effect before 3.46
 * </pre>
 *
 * <h2>Protocol</h2>
 *
 * Lines of UTF-8; words are separated by one blank and contain none. The first line out, once connected, is
 *
 * <pre>
 * ready &lt;redisson version&gt; &lt;client uuid&gt;
 * </pre>
 *
 * From then on each request gets exactly one line in answer. The id is any word; requests run concurrently, so answers
 * come in the order in which they are done.
 *
 * <pre>
 * &lt;id&gt; &lt;command&gt; &lt;argument&gt;…
 * &lt;id&gt; ok &lt;began&gt; &lt;ended&gt; [&lt;result&gt;…]
 * &lt;id&gt; err &lt;began&gt; &lt;ended&gt; &lt;exception class&gt;: &lt;text to the end of the line&gt;
 * </pre>
 *
 * {@code began} and {@code ended} are µs of CLOCK_MONOTONIC ({@link System#nanoTime}), comparable between processes of one
 * machine, taken right before and after the operation. A hold lasts at least from the {@code ended} of its lock to the
 * {@code began} of its unlock; a hand-over takes from the {@code began} of the one's unlock to the {@code ended} of the
 * other's lock.
 *
 * <p>An <b>actor</b> is any word, and a thread of its own: Redisson's owner is the thread. The commands of one actor run
 * one after the other, those of different actors at once. An actor keeps its lock objects, as Java code with a field does.
 *
 * <p>A <b>kind</b> is {@code reentrant}, {@code fair}, {@code read}, {@code write}, {@code spin} or {@code fenced} (since
 * 3.19). Times are ms; a lease of -1 means the watchdog.
 *
 * <pre>
 * lock &lt;actor&gt; &lt;kind&gt; &lt;name&gt; [&lt;lease&gt;]             waits as long as it takes
 * trylock &lt;actor&gt; &lt;kind&gt; &lt;name&gt; &lt;wait&gt; &lt;lease&gt;    true | false
 * trylock &lt;actor&gt; &lt;kind&gt; &lt;name&gt;                   true | false   tryLock(): one attempt, never queues
 * unlock &lt;actor&gt; &lt;kind&gt; &lt;name&gt;                    err IllegalMonitorStateException if not the owner
 * locktoken &lt;actor&gt; &lt;name&gt;                        token          lockAndGetToken() of a fenced lock
 * holdcount &lt;actor&gt; &lt;kind&gt; &lt;name&gt;                 number         of this actor
 * owner &lt;actor&gt;                                   uuid:thread    answers even while the actor waits
 *
 * held &lt;kind&gt; &lt;name&gt;                              true | false   isLocked(), by any holder
 * ttl &lt;kind&gt; &lt;name&gt;                               ms             remainTimeToLive(); -2 no lock, -1 no expiry
 * forceunlock &lt;kind&gt; &lt;name&gt;                       true | false   whether there was a lock
 * burst &lt;kind&gt; &lt;name&gt; &lt;waiters&gt; &lt;rounds&gt;          sections, elapsed µs, worst wait µs
 *                                                 waiters threads lock and unlock rounds times each, with nothing between
 * loop &lt;kind&gt; &lt;name&gt; &lt;threads&gt; &lt;time&gt; &lt;work&gt;     sections, elapsed µs, worst wait µs
 *                                                 threads lock, work and unlock until the time is over
 *
 * setpermits &lt;name&gt; &lt;limit&gt;                       true | false   trySetPermits(); false: a limit was set before
 * addpermits &lt;name&gt; &lt;number&gt;
 * freepermits &lt;name&gt;                              number         availablePermits()
 * takepermit &lt;name&gt; &lt;wait&gt; &lt;lease&gt;                 id | none      a wait of -1 is acquire(); a lease of -1 never ends
 * givepermit &lt;name&gt; &lt;id&gt;                           true | false   tryRelease()
 *
 * uuid                                            the client's, as in `ready`
 * shutdown                                        closes the client; holds stay until they expire
 * quit                                            answers, then ends the process at once; so does the end of stdin
 * </pre>
 */
public final class Driver {
    private final RedissonClient redisson;
    private final PrintStream out;
    private final Map<String, Actor> actors = new HashMap<>();
    private final ExecutorService unordered = Executors.newCachedThreadPool();

    private Driver(RedissonClient redisson, PrintStream out) {
        this.redisson = redisson;
        this.out = out;
    }

    public static void main(String[] arguments) {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, UTF_8);
        System.setOut(System.err); // stdout carries the protocol alone, whatever a library prints
        int status = 0;
        try {
            new Driver(Redisson.create(config(arguments)), out).serve();
        } catch (Throwable failure) {
            System.err.println(describe(failure));
            status = 1;
        }
        // Not exit: the test has ended, and this process must not outlive it or wait for the client's threads.
        Runtime.getRuntime().halt(status);
    }

    private void serve() throws Exception {
        out.println("ready " + version() + " " + redisson.getId());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Request request = Request.parse(line);
            if (request.command.equals("quit")) {
                answer(request, () -> "");
                return;
            }
            try {
                dispatch(request);
            } catch (IllegalArgumentException malformed) {
                answer(request, () -> {
                    throw malformed;
                });
            }
        }
    }

    private void dispatch(Request request) {
        switch (request.command) {
            case "lock", "trylock", "unlock", "locktoken", "holdcount" -> {
                Actor actor = actor(request.word());
                actor.tasks.add(() -> answer(request, () -> actor.perform(request)));
            }
            case "owner" -> answer(request, () -> redisson.getId() + ":" + actor(request.word()).getId());
            default -> unordered.execute(() -> answer(request, () -> perform(request)));
        }
    }

    private Object perform(Request request) throws Exception {
        return switch (request.command) {
            case "held" -> lock(request.word(), request.word()).isLocked();
            case "ttl" -> lock(request.word(), request.word()).remainTimeToLive();
            case "forceunlock" -> lock(request.word(), request.word()).forceUnlock();
            case "burst" -> burst(request.word(), request.word(), (int) request.number(), request.number());
            case "loop" -> closedLoop(
                    request.word(), request.word(), (int) request.number(), request.number(), request.number());
            case "setpermits" -> permits(request).trySetPermits((int) request.number());
            case "addpermits" -> addPermits(permits(request), (int) request.number());
            case "freepermits" -> permits(request).availablePermits();
            case "takepermit" -> takePermit(permits(request), request.number(), request.number());
            case "givepermit" -> permits(request).tryRelease(request.word());
            case "uuid" -> redisson.getId();
            case "shutdown" -> done(redisson::shutdown);
            default -> throw new IllegalArgumentException("no such command: " + request.command);
        };
    }

    private void answer(Request request, Callable<Object> operation) {
        String verdict;
        Object result;
        long began = micros();
        try {
            result = operation.call();
            verdict = " ok ";
        } catch (Throwable failure) {
            result = describe(failure);
            verdict = " err ";
        }
        long ended = micros();
        // One call, so that lines of different threads do not mix.
        out.println((request.id + verdict + began + " " + ended + " " + result).stripTrailing());
    }

    /** An owner of locks: for Redisson the owner is the thread. */
    private final class Actor extends Thread {
        final BlockingQueue<Runnable> tasks = new LinkedBlockingQueue<>();
        private final Map<String, RLock> locks = new HashMap<>();

        Actor(String name) {
            super(name);
        }

        @Override
        public void run() {
            while (true) {
                try {
                    tasks.take().run();
                } catch (InterruptedException stray) {
                    // Left by a finished task; actors are not ended by interrupts.
                }
            }
        }

        Object perform(Request request) throws Exception {
            String kind = request.command.equals("locktoken") ? "fenced" : request.word();
            String name = request.word();
            RLock lock = locks.computeIfAbsent(kind + " " + name, unused -> lock(kind, name));
            return switch (request.command) {
                case "lock" -> {
                    long lease = request.more() ? request.number() : -1;
                    yield done(() -> lock.lock(lease, MILLISECONDS));
                }
                case "trylock" -> request.more()
                        ? lock.tryLock(request.number(), request.number(), MILLISECONDS)
                        : lock.tryLock();
                case "unlock" -> done(lock::unlock);
                case "locktoken" -> lockAndGetToken(lock);
                case "holdcount" -> lock.getHoldCount();
                default -> throw new AssertionError(request.command);
            };
        }
    }

    private Actor actor(String name) {
        return actors.computeIfAbsent(name, unused -> {
            Actor actor = new Actor(name);
            actor.start();
            return actor;
        });
    }

    private RLock lock(String kind, String name) {
        return switch (kind) {
            case "reentrant" -> redisson.getLock(name);
            case "fair" -> redisson.getFairLock(name);
            case "read" -> redisson.getReadWriteLock(name).readLock();
            case "write" -> redisson.getReadWriteLock(name).writeLock();
            case "spin" -> redisson.getSpinLock(name);
            case "fenced" -> fencedLock(name);
            default -> throw new IllegalArgumentException("no such kind: " + kind);
        };
    }

    private RPermitExpirableSemaphore permits(Request request) {
        return redisson.getPermitExpirableSemaphore(request.word());
    }

    private static Object addPermits(RPermitExpirableSemaphore permits, int number) {
        return done(() -> permits.addPermits(number));
    }

    private static Object takePermit(RPermitExpirableSemaphore permits, long wait, long lease) throws Exception {
        String id = wait < 0 ? permits.acquire(lease, MILLISECONDS) : permits.tryAcquire(wait, lease, MILLISECONDS);
        return id == null ? "none" : id;
    }

    private String burst(String kind, String name, int waiters, long rounds) throws Exception {
        return contend(kind, name, waiters, 0, round -> round < rounds);
    }

    private String closedLoop(String kind, String name, int threads, long time, long work) throws Exception {
        long over = micros() + time * 1000;
        return contend(kind, name, threads, work, round -> micros() < over);
    }

    /** Throughput and hand-over under contention; every thread has its own lock object, like a request handler. */
    private String contend(String kind, String name, int waiters, long work, LongPredicate goesOn) throws Exception {
        List<RLock> locks = Stream.generate(() -> lock(kind, name)).limit(waiters).toList();
        ExecutorService threads = Executors.newFixedThreadPool(waiters);
        CountDownLatch start = new CountDownLatch(1);
        LongAdder sections = new LongAdder();
        LongAccumulator worst = new LongAccumulator(Math::max, 0);
        List<Future<?>> ends = new ArrayList<>();
        try {
            for (RLock lock : locks) {
                ends.add(threads.submit(() -> {
                    start.await();
                    for (long round = 0; goesOn.test(round); round++) {
                        long asked = micros();
                        lock.lock();
                        worst.accumulate(micros() - asked);
                        sections.increment();
                        if (work > 0) {
                            Thread.sleep(work);
                        }
                        lock.unlock();
                    }
                    return null;
                }));
            }
            long began = micros();
            start.countDown();
            for (Future<?> end : ends) {
                end.get();
            }
            return sections + " " + (micros() - began) + " " + worst;
        } finally {
            threads.shutdownNow();
        }
    }

    // Methods that 3.15 lacks are called by reflection, so that one source serves every version.

    private RLock fencedLock(String name) {
        try {
            return (RLock) RedissonClient.class.getMethod("getFencedLock", String.class).invoke(redisson, name);
        } catch (ReflectiveOperationException absent) {
            throw new UnsupportedOperationException("no fenced lock in Redisson " + version(), absent);
        }
    }

    private static Object lockAndGetToken(RLock fenced) throws ReflectiveOperationException {
        return Class.forName("org.redisson.api.RFencedLock").getMethod("lockAndGetToken").invoke(fenced);
    }

    private static void setFairLockWaitTimeout(Config config, long millis) throws ReflectiveOperationException {
        try {
            Config.class.getMethod("setFairLockWaitTimeout", long.class).invoke(config, millis);
        } catch (NoSuchMethodException before346) {
            // A constant there.
        }
    }

    /** A name mapper that puts a prefix before each name. Redisson 3.15 has none. */
    private static void setNameMapper(Config config, String prefix) throws ReflectiveOperationException {
        Class<?> type = Class.forName("org.redisson.config.NameMapper");
        Object mapper = Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, (proxy, method, names) ->
                switch (method.getName()) {
                    case "map" -> prefix + names[0];
                    case "unmap" -> ((String) names[0]).substring(prefix.length());
                    default -> throw new UnsupportedOperationException(method.getName());
                });
        Config.class.getMethod("setNameMapper", type).invoke(config, mapper);
    }

    private static Config config(String[] arguments) throws ReflectiveOperationException {
        if (arguments.length == 0) {
            throw new IllegalArgumentException("usage: <address>[,<address>…] [cluster] [watchdog=<ms>] [fair-wait=<ms>] [prefix=<text>]");
        }
        String[] addresses = arguments[0].split(",");
        boolean cluster = false;
        // Few threads and connections, for a fast start and a low load.
        Config config = new Config().setCodec(StringCodec.INSTANCE).setThreads(4).setNettyThreads(4);
        for (String option : List.of(arguments).subList(1, arguments.length)) {
            String[] pair = option.split("=", 2);
            switch (pair[0]) {
                case "cluster" -> cluster = true;
                case "watchdog" -> config.setLockWatchdogTimeout(Long.parseLong(pair[1]));
                case "fair-wait" -> setFairLockWaitTimeout(config, Long.parseLong(pair[1]));
                case "prefix" -> setNameMapper(config, pair[1]);
                default -> throw new IllegalArgumentException("no such option: " + option);
            }
        }
        if (cluster) {
            config.useClusterServers()
                    .addNodeAddress(addresses)
                    .setReadMode(ReadMode.MASTER)
                    .setMasterConnectionMinimumIdleSize(1)
                    .setSubscriptionConnectionMinimumIdleSize(1)
                    .setDnsMonitoringInterval(-1);
        } else {
            config.useSingleServer()
                    .setAddress(arguments[0])
                    .setConnectionMinimumIdleSize(1)
                    .setSubscriptionConnectionMinimumIdleSize(1)
                    .setDnsMonitoringInterval(-1);
        }
        return config;
    }

    private static String version() {
        return Redisson.class.getPackage().getImplementationVersion();
    }

    private static long micros() {
        return System.nanoTime() / 1000;
    }

    private static Object done(Runnable operation) {
        operation.run();
        return "";
    }

    private static String describe(Throwable failure) {
        while (failure instanceof InvocationTargetException || failure instanceof ExecutionException) {
            failure = failure.getCause();
        }
        return failure.getClass().getSimpleName() + ": " + String.valueOf(failure.getMessage()).replaceAll("\\s+", " ");
    }

    private record Request(String id, String command, Iterator<String> words) {
        static Request parse(String line) {
            Iterator<String> words = List.of(line.split(" ")).iterator();
            return new Request(words.next(), words.hasNext() ? words.next() : "", words);
        }

        boolean more() {
            return words.hasNext();
        }

        String word() {
            if (!words.hasNext()) {
                throw new IllegalArgumentException("too few arguments for " + command);
            }
            return words.next();
        }

        long number() {
            return Long.parseLong(word());
        }
    }
}
