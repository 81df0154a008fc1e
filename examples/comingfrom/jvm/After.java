import java.io.IOException;

/** The program after, where Java stays: the command line holds the lock. */
class After {
	static void dlock(String name, Runnable work) throws IOException, InterruptedException {
		Process holder = new ProcessBuilder("dlock", "run", name, "--", "sh", "-c", "echo held; cat")
				.redirectError(ProcessBuilder.Redirect.INHERIT)
				.start();
		int code;
		try {
			if (!"held".equals(holder.inputReader().readLine())) {
				throw new IllegalStateException("dlock: exit code " + holder.waitFor());
			}
			work.run(); // holder.onExit() tells of a loss meanwhile
		} finally {
			holder.outputWriter().close(); // gives the lock back
			code = holder.waitFor();
		}
		if (code != 0) {
			throw new IllegalStateException("dlock: the lock was lost, exit code " + code);
		}
	}
}
