import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * One process of the comparison across processes, in Java. It speaks as worker.go does:
 *
 * <pre>Worker KIND ADDRESS CLIENTS FIRST FILE</pre>
 *
 * It says "ready", and for each line "MILLISECONDS NAME" has its clients contend for that
 * lock, and answers with "HANDOVERS OVERLAPS CYCLES...", with the cycles of each client.
 */
public class Worker {
	interface Lock {
		void lock() throws Exception;

		void unlock() throws Exception;
	}

	interface Client {
		Lock named(String name);
	}

	public static void main(String[] args) throws Exception {
		String kind = args[0], address = args[1];
		int count = Integer.parseInt(args[2]), first = Integer.parseInt(args[3]);
		Register register = new Register(Path.of(args[4]));
		List<Client> clients = new ArrayList<>();
		for (int i = 0; i < count; i++) {
			clients.add(open(kind, address));
		}
		System.out.println("ready");
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		for (String line = in.readLine(); line != null; line = in.readLine()) {
			String[] words = line.split(" ");
			System.out.println(run(clients, first, register, Long.parseLong(words[0]), words[1]));
		}
		System.exit(0); // whatever threads the libraries leave
	}

	static String run(List<Client> clients, int first, Register register, long millis, String name) throws Exception {
		long end = System.nanoTime() + millis * 1_000_000;
		AtomicLong handOvers = new AtomicLong(), overlaps = new AtomicLong();
		long[] cycles = new long[clients.size()];
		List<Thread> threads = new ArrayList<>();
		List<Exception> failures = new ArrayList<>();
		for (int i = 0; i < cycles.length; i++) {
			int seat = i;
			Thread t = new Thread(() -> {
				try {
					Lock lock = clients.get(seat).named(name);
					while (System.nanoTime() < end) {
						lock.lock();
						register.enter(first + seat, handOvers, overlaps);
						register.leave();
						lock.unlock();
						cycles[seat]++;
					}
				} catch (Exception e) {
					synchronized (failures) {
						failures.add(e);
					}
				}
			});
			threads.add(t);
			t.start();
		}
		for (Thread t : threads) {
			t.join();
		}
		if (!failures.isEmpty()) {
			return "failed " + failures.get(0);
		}
		StringBuilder out = new StringBuilder().append(handOvers.get()).append(' ').append(overlaps.get());
		for (long n : cycles) {
			out.append(' ').append(n);
		}
		return out.toString();
	}

	static Client open(String kind, String address) {
		if (kind.equals("curator")) {
			CuratorFramework curator = CuratorFrameworkFactory.newClient(address, 15_000, 15_000, new RetryOneTime(100));
			curator.start();
			return name -> {
				InterProcessMutex mutex = new InterProcessMutex(curator, "/" + name);
				return lock(mutex::acquire, mutex::release);
			};
		}
		Config config = new Config().setThreads(2).setNettyThreads(2);
		config.useSingleServer().setAddress("redis://" + address).setConnectionMinimumIdleSize(2).setSubscriptionConnectionMinimumIdleSize(1);
		RedissonClient redisson = Redisson.create(config);
		return name -> {
			switch (kind) {
				case "redisson-fair":
					RLock fair = redisson.getFairLock(name);
					return lock(fair::lock, fair::unlock);
				case "redisson-fenced":
					RFencedLock fenced = redisson.getFencedLock(name);
					return lock(fenced::lockAndGetToken, fenced::unlock);
				default:
					RLock lock = redisson.getLock(name);
					return lock(lock::lock, lock::unlock);
			}
		};
	}

	interface Action {
		void run() throws Exception;
	}

	static Lock lock(Action lock, Action unlock) {
		return new Lock() {
			public void lock() throws Exception {
				lock.run();
			}

			public void unlock() throws Exception {
				unlock.run();
			}
		};
	}

	/** The memory that all processes share: who is in, and who was in last. Zero is nobody. */
	static class Register {
		private static final int IN = 0, LAST = 8;
		private final MappedByteBuffer memory;

		Register(Path path) throws Exception {
			try (FileChannel file = FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
				memory = file.map(FileChannel.MapMode.READ_WRITE, 0, 16);
			}
			memory.order(ByteOrder.nativeOrder());
		}

		void enter(long who, AtomicLong handOvers, AtomicLong overlaps) {
			if (memory.getLong(IN) != 0) {
				overlaps.incrementAndGet();
			}
			memory.putLong(IN, who);
			if (memory.getLong(LAST) != who) {
				handOvers.incrementAndGet();
			}
			memory.putLong(LAST, who);
		}

		void leave() {
			memory.putLong(IN, 0);
		}
	}
}
