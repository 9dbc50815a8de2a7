import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

import org.redisson.Redisson;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RateLimiterConfig;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.api.ratelimiter.RateLimiterArgs;
import org.redisson.config.Config;

/**
 * Redisson's rate limiter on standard input and output: each line is a question, and gets one line
 * as its answer. The answers are Redisson's own; interop.rs judges them.
 */
public final class Interop {
    private final RedissonClient redisson;
    private RRateLimiter limiter;

    private Interop(RedissonClient redisson) {
        this.redisson = redisson;
        this.limiter = redisson.getRateLimiter("interop");
    }

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(arguments[0]).setConnectionMinimumIdleSize(8).setConnectionPoolSize(8);
        RedissonClient redisson = Redisson.create(config);
        try {
            System.out.println("redisson " + Redisson.class.getPackage().getImplementationVersion());
            new Interop(redisson).serve(new BufferedReader(new InputStreamReader(System.in)));
        } finally {
            redisson.shutdown();
        }
    }

    private void serve(BufferedReader lines) throws Exception {
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" "));
            } catch (RuntimeException error) {
                answer = "error " + String.valueOf(error.getMessage()).replace('\n', ' ');
            }
            System.out.println(answer);
        }
    }

    private String answer(String[] words) throws InterruptedException {
        return switch (words[0]) {
            case "name" -> {
                limiter = redisson.getRateLimiter(words[1]);
                yield "ok";
            }
            case "clock" -> String.valueOf(System.currentTimeMillis());
            case "trySetRate" -> String.valueOf(words.length > 4
                    ? limiter.trySetRate(type(words), number(words, 2), millis(words, 3), millis(words, 4))
                    : limiter.trySetRate(type(words), number(words, 2), millis(words, 3)));
            case "setRate" -> {
                limiter.setRate(arguments(words));
                yield "ok";
            }
            case "updateRate" -> String.valueOf(limiter.updateRate(arguments(words)));
            case "getConfig" -> {
                RateLimiterConfig config = limiter.getConfig();
                yield config.getRateType() + " " + config.getRate() + " " + config.getRateInterval();
            }
            case "availablePermits" -> String.valueOf(limiter.availablePermits());
            case "tryAcquire" -> String.valueOf(words.length > 2
                    ? limiter.tryAcquire(number(words, 1), millis(words, 2))
                    : limiter.tryAcquire(number(words, 1)));
            case "acquire" -> {
                limiter.acquire(number(words, 1));
                yield "ok";
            }
            case "release" -> {
                limiter.release(number(words, 1));
                yield "ok";
            }
            case "delete" -> String.valueOf(limiter.delete());
            case "isExists" -> String.valueOf(limiter.isExists());
            case "expire" -> String.valueOf(limiter.expire(millis(words, 1)));
            case "clearExpire" -> String.valueOf(limiter.clearExpire());
            case "remainTimeToLive" -> String.valueOf(limiter.remainTimeToLive());
            case "hammer" -> hammer((int) number(words, 1), millis(words, 2));
            default -> "error unknown: " + words[0];
        };
    }

    /** Tries in threads without a pause. Returns the numbers of admitted calls and of all calls. */
    private String hammer(int count, Duration duration) throws InterruptedException {
        AtomicLong admitted = new AtomicLong();
        AtomicLong calls = new AtomicLong();
        CountDownLatch end = new CountDownLatch(count);
        long until = System.nanoTime() + duration.toNanos();
        for (int i = 0; i < count; i++) {
            Thread thread = new Thread(() -> {
                try {
                    while (System.nanoTime() < until) {
                        calls.incrementAndGet();
                        if (limiter.tryAcquire(1)) {
                            admitted.incrementAndGet();
                        }
                    }
                } finally {
                    end.countDown();
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        end.await();
        return admitted + " " + calls;
    }

    /** Reads `type rate interval keepAliveTime keepState`, in ms. 0 means no keepAliveTime. */
    private static RateLimiterArgs arguments(String[] words) {
        RateLimiterArgs arguments = RateLimiterArgs.of(type(words), number(words, 2), millis(words, 3))
                .keepState(Boolean.parseBoolean(words[5]));
        return number(words, 4) > 0 ? arguments.keepAliveTime(millis(words, 4)) : arguments;
    }

    private static RateType type(String[] words) {
        return RateType.valueOf(words[1]);
    }

    private static long number(String[] words, int place) {
        return Long.parseLong(words[place]);
    }

    private static Duration millis(String[] words, int place) {
        return Duration.ofMillis(number(words, place));
    }
}
