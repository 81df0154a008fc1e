import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.TimeZone;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.sql.DataSource;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;

/** What the pages say of the libraries, one check each: Claims KIND ADDRESS. */
public class Claims {
	interface Action {
		void run() throws Throwable;
	}

	public static void main(String[] args) throws Throwable {
		switch (args[0]) {
			case "redisson":
				redisson(Hold.redisson(args[1]), Hold.redisson(args[1]));
				break;
			case "curator":
				curator(Hold.curator(args[1]), Hold.curator(args[1]));
				break;
			default:
				shedlock(Hold.shedlock(args[1]), Hold.shedlock(args[1]));
				zone(Hold.shedlock(args[1]), Hold.source(args[1]));
		}
		System.exit(0);
	}

	static void redisson(RedissonClient one, RedissonClient other) throws Throwable {
		RLock lock = one.getLock("claims");
		lock.lock();
		long ttl = lock.remainTimeToLive();
		check(ttl > 25_000 && ttl <= 30_000, "without a lease time the lock has 30 s, not " + ttl);
		check(other.getLock("claims").isLocked(), "the other client sees the lock");
		inAnotherThread(() -> fails(lock::unlock, IllegalMonitorStateException.class, "another thread cannot unlock it"));
		lock.lock();
		check(lock.getHoldCount() == 2, "the same thread enters again");
		lock.unlock();

		one.getKeys().delete("claims"); // as when it has expired
		check(other.getLock("claims").tryLock(), "the other client gets a lock that was lost");
		fails(lock::unlock, IllegalMonitorStateException.class, "its first holder learns of that at unlock");
		other.getLock("claims").unlock();

		RLock leased = one.getLock("leased");
		leased.lock(300, TimeUnit.MILLISECONDS);
		check(other.getLock("leased").tryLock(60, TimeUnit.SECONDS), "a lock with a lease time is not renewed");
		other.getLock("leased").unlock();

		RFencedLock fenced = one.getFencedLock("fenced");
		long first = fenced.lockAndGetToken();
		long second = fenced.lockAndGetToken();
		check(second > first, "the token grows when its holder enters again");
		fenced.forceUnlock();

		RLock plain = other.getLock("shared");
		for (RLock kin : new RLock[] {one.getSpinLock("shared"), one.getFencedLock("shared")}) {
			kin.lock();
			check(!plain.tryLock(), "spin and fenced locks are one with that of getLock");
			kin.unlock();
		}

		plain.lock();
		check(!one.getFairLock("shared").tryLock(), "a fair lock is not had while the plain one of its name is held");
		check(one.getReadWriteLock("shared").writeLock().tryLock(), "a read-write lock takes no notice of the plain one of its name");
		plain.forceUnlock();
		await(() -> {
			plain.lock();
			return !isTold(one.getFairLock("shared"), plain);
		}, "who waits for the fair lock is not told of a release of the plain one");

		one.getLock("second").lock();
		Waiter multi = new Waiter(() -> other.getMultiLock(other.getLock("first"), other.getLock("second")).tryLock(2, TimeUnit.SECONDS));
		await(() -> one.getLock("first").isLocked(), "a multi-lock keeps the first lock while it waits for the next");
		check(!multi.got(), "a multi-lock waits for the next lock");
		one.getLock("second").unlock();

		RReadWriteLock both = one.getReadWriteLock("both");
		both.readLock().lock();
		check(!both.writeLock().tryLock(300, TimeUnit.MILLISECONDS), "a reader that wants to write waits for itself");
		both.readLock().unlock();
		await(() -> {
			both.writeLock().lock();
			check(both.readLock().tryLock(), "a writer may read");
			boolean told = isTold(other.getReadWriteLock("both").readLock(), both.writeLock());
			check(other.getReadWriteLock("both").readLock().tryLock(), "a reader that asks gets in when the writer reads on");
			one.getKeys().delete("both");
			return !told;
		}, "a reader that waits is not told that the writer reads on");
		fails(() -> lock.newCondition(), UnsupportedOperationException.class, "there are no conditions");
	}

	/** Whether who waits for a lock gets it within 1.5 s of a release. */
	static boolean isTold(RLock wanted, RLock held) throws Throwable {
		Waiter waiter = new Waiter(() -> wanted.tryLock(2, TimeUnit.SECONDS) && wanted.forceUnlock());
		Thread.sleep(500);
		held.unlock();
		return waiter.got();
	}

	static void curator(CuratorFramework one, CuratorFramework other) throws Throwable {
		check(CuratorFrameworkFactory.builder().getSessionTimeoutMs() == 60_000, "the session has 60 s unless told otherwise");
		InterProcessMutex mutex = new InterProcessMutex(one, "/locks/claims");
		InterProcessMutex rival = new InterProcessMutex(other, "/locks/claims");
		mutex.acquire();
		check(!rival.acquire(300, TimeUnit.MILLISECONDS), "the other client waits");
		mutex.acquire();
		mutex.release();
		check(mutex.isAcquiredInThisProcess(), "the same thread enters again");
		inAnotherThread(() -> fails(mutex::release, IllegalMonitorStateException.class, "another thread cannot release it"));

		for (String node : one.getChildren().forPath("/locks/claims")) {
			other.delete().forPath("/locks/claims/" + node); // as an operator would
		}
		check(rival.acquire(60, TimeUnit.SECONDS), "the other client gets a lock whose node was deleted");
		check(mutex.isAcquiredInThisProcess(), "its first holder is not told");
		rival.release();

		InterProcessMutex second = new InterProcessMutex(one, "/locks/second");
		second.acquire();
		InterProcessMultiLock multi = new InterProcessMultiLock(other, List.of("/locks/first", "/locks/second"));
		Waiter waiter = new Waiter(() -> multi.acquire(60, TimeUnit.SECONDS));
		InterProcessMutex first = new InterProcessMutex(one, "/locks/first");
		await(() -> first.getParticipantNodes().size() == 1, "a multi-lock keeps the first lock while it waits for the next");
		check(!first.acquire(300, TimeUnit.MILLISECONDS), "and nobody else gets that one");
		second.release();
		check(waiter.got(), "a multi-lock gets the next lock when it is free");

		InterProcessReadWriteLock both = new InterProcessReadWriteLock(one, "/locks/both");
		both.readLock().acquire();
		check(!both.writeLock().acquire(300, TimeUnit.MILLISECONDS), "a reader that wants to write waits for itself");
		both.readLock().release();
		both.writeLock().acquire();
		check(both.readLock().acquire(60, TimeUnit.SECONDS), "a writer may read");
	}

	static void shedlock(LockProvider one, LockProvider other) throws Throwable {
		SimpleLock late = one.lock(config("at most", 3_000, 0)).get();
		check(other.lock(config("at most", 60_000, 0)).isEmpty(), "the other process is refused at once");
		await(() -> other.lock(config("at most", 60_000, 0)).isPresent(), "the other gets it after lockAtMostFor, whatever the first does");
		late.unlock(); // and the first is not told, neither here
		one.lock(config("at least", 60_000, 2_000)).get().unlock();
		check(other.lock(config("at least", 60_000, 0)).isEmpty(), "after unlock it is kept for the rest of lockAtLeastFor");
		await(() -> other.lock(config("at least", 60_000, 0)).isPresent(), "and no longer");
		fails(() -> config("wrong", 1, 2), IllegalArgumentException.class, "lockAtLeastFor is no longer than lockAtMostFor");
		SimpleLock mine = one.lock(config("again", 60_000, 0)).get();
		check(one.lock(config("again", 60_000, 0)).isEmpty(), "the holder does not enter again");
		mine.unlock();
	}

	static void zone(LockProvider provider, DataSource source) throws Throwable {
		TimeZone.setDefault(TimeZone.getTimeZone("Asia/Tokyo"));
		provider.lock(config("zone", 60_000, 0)).get();
		try (Connection c = source.getConnection(); Statement s = c.createStatement()) {
			ResultSet row = s.executeQuery("SELECT lock_until > timezone('utc', now()) + interval '8 hours' FROM shedlock WHERE name = 'zone'");
			check(row.next() && row.getBoolean(1), "the table has the time zone of the JVM");
		}
	}

	static LockConfiguration config(String name, long atMost, long atLeast) {
		return new LockConfiguration(Instant.now(), name, Duration.ofMillis(atMost), Duration.ofMillis(atLeast));
	}

	/** One that asks for a lock in a thread of its own. */
	static class Waiter {
		private final FutureTask<Boolean> task;

		Waiter(Callable<Boolean> ask) {
			task = new FutureTask<>(ask);
			new Thread(task).start();
		}

		boolean got() throws Exception {
			return task.get();
		}
	}

	interface Condition {
		boolean holds() throws Throwable;
	}

	static void await(Condition c, String claim) throws Throwable {
		long end = System.nanoTime() + Duration.ofMinutes(1).toNanos();
		while (!c.holds()) {
			check(System.nanoTime() < end, claim);
			Thread.sleep(10);
		}
	}

	static void check(boolean holds, String claim) {
		if (!holds) {
			System.out.println("it is not so that " + claim);
			System.exit(1);
		}
	}

	static void fails(Action action, Class<? extends Throwable> want, String claim) {
		try {
			action.run();
		} catch (Throwable e) {
			check(want.isInstance(e), claim + ": " + e);
			return;
		}
		check(false, claim);
	}

	static void inAnotherThread(Action action) throws Throwable {
		AtomicBoolean done = new AtomicBoolean();
		Thread t = new Thread(() -> {
			try {
				action.run();
				done.set(true);
			} catch (Throwable e) {
				System.out.println(e);
			}
		});
		t.start();
		t.join();
		check(done.get(), "the thread came to its end");
	}
}
