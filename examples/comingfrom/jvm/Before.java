import java.time.Duration;
import java.time.Instant;
import net.javacrumbs.shedlock.core.DefaultLockingTaskExecutor;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** The programs before, as the pages have them. */
class Before {
	static void redisson(RedissonClient redisson, String name, Runnable work) {
		RLock lock = redisson.getLock(name);
		lock.lock();
		try {
			work.run();
		} finally {
			lock.unlock();
		}
	}

	static void curator(CuratorFramework curator, String name, Runnable work) throws Exception {
		InterProcessMutex mutex = new InterProcessMutex(curator, "/locks/" + name);
		mutex.acquire();
		try {
			work.run();
		} finally {
			mutex.release();
		}
	}

	/** Skips the work, and says so, if somebody else has the lock. */
	static boolean shedlock(LockProvider provider, String name, Duration atMost, Duration atLeast, Runnable work) throws Throwable {
		LockConfiguration config = new LockConfiguration(Instant.now(), name, atMost, atLeast);
		return new DefaultLockingTaskExecutor(provider)
				.executeWithLock(() -> { work.run(); return true; }, config)
				.wasExecuted();
	}
}
